"""How well a forecast foresaw: log densities of what was observed under the joint law of its channels."""

from __future__ import annotations

from fleetgp.arrays import Array
from fleetgp.gp import joint
from fleetgp.gp.engine import Law
from fleetgp.gp.learner import Forecast


def log_density(forecast: Forecast, observed: Array) -> Array:
    """Log density [n] of frames' readings [n, Q] under the joint law of their channels, in transformed units; NaN left out.

    forecast: of n frames.
    """
    return joint.log_density(forecast.correlation, observed - forecast.mean, forecast.scale, forecast.degrees)


def log_density_of_one(law: Law, observed: Array) -> float:
    """The same of one frame's readings [Q]."""
    error = (observed - law.mean)[None]
    return float(joint.log_density(law.correlation[None], error, law.scale[None], law.degrees[None])[0])
