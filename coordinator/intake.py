"""The coordinator's door: what an agent sent is decoded and checked before it can touch the fleet's model."""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.gp.message import Term
from fleetgp.scaling import Moments
from fleetgp.wire import codec
from fleetgp.wire.convert import from_triangles, to_array
from fleetgp.wire.messages import Bootstrap, Summary

# an eigenvalue of a precision may be negative by rounding only
INDEFINITE = 1e-9


def bootstrap(payload: bytes, agent_id: str) -> Bootstrap:
    """Raises PeerError; code ``other_agent`` when it was sent on another agent's topic."""
    message = codec.decode(payload, Bootstrap)
    _check_sender(message.agent, agent_id)
    return message


def summary(payload: bytes, agent_id: str) -> Summary:
    """Raises PeerError; code ``other_agent`` when it was sent on another agent's topic."""
    message = codec.decode(payload, Summary)
    _check_sender(message.agent, agent_id)
    return message


def moments(message: Bootstrap) -> Moments:
    """Moments [K] of a bootstrap. Raises PeerError ``shape``, ``finite`` or ``negative``."""
    shape = (len(message.schema.inputs),)
    result = Moments(
        to_array(message.count, shape, "count"),
        to_array(message.mean, shape, "mean"),
        to_array(message.centred_square_sum, shape, "centred_square_sum"),
    )
    if np.any(result.n < 0) or np.any(result.centred_square_sum < 0):
        raise PeerError("negative", f"{message.agent} sent a negative count or sum of squares")
    return result


def term(message: Summary, channels: int, size: int) -> tuple[Term, Array, Array]:
    """Term, noise variance [Q] and count [Q]. Raises PeerError ``shape``, ``finite``, ``negative`` or ``indefinite``."""
    triangles = to_array(message.precision, (channels, size * (size + 1) // 2), "precision")
    precision = from_triangles(triangles, size)
    noise_var = to_array(message.noise_variance, (channels,), "noise_variance")
    count = to_array(message.count, (channels,), "count")
    if np.any(count < 0) or np.any(noise_var <= 0):
        raise PeerError("negative", f"{message.agent} sent a negative count or a noise variance that is not positive")
    eigenvalues = np.linalg.eigvalsh(precision)
    if np.any(eigenvalues[:, 0] < -INDEFINITE * np.maximum(eigenvalues[:, -1], 1.0)):
        raise PeerError("indefinite", f"{message.agent} sent a precision that is not positive semidefinite")
    return Term(precision, to_array(message.shift, (channels, size), "shift")), noise_var, count


def _check_sender(named: str, agent_id: str) -> None:
    if named != agent_id:
        raise PeerError("other_agent", f"a message of {named!r} came on the topic of {agent_id!r}")
