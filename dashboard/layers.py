"""What a channel's expectation is made of, in the channel's own unit. Pure: no Streamlit, no clock, no file.

The store keeps three layers of each prediction in the transformed unit; the base is what they leave of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from dashboard import labels
from fleetgp.arrays import Array
from fleetgp.schema import Channel, Schema
from fleetgp.store.base import Window

NAMES = ("shared", "deviation", "local")
COLUMNS = (*(f".{name}" for name in NAMES), ".pull")
# a device that forgets where it was in more frames than this has no level worth telling
LEAST_PULL = 0.02
RARE = 0.01  # share of points that may reach beyond the axis, on each side
EVEN = 0.1  # of half the band's width: who runs no further from the fleet's level runs as the fleet does


@dataclass(frozen=True)
class LayerData:
    """points: the three layers, mean over the frames of each point. sentence: what they say, in words. extent: of the axis."""

    points: pd.DataFrame
    sentence: str
    extent: tuple[float, float]


def is_level(schema: Schema | None) -> bool:
    """Whether layers are parts of the level, as with loadings that mix channels, not of the step from the last reading."""
    return schema is not None and schema.mixing == "ilmm"


def layer_data(window: Window, channel: Channel, is_level: bool) -> LayerData | None:
    """Of one channel, None where its predictions tell no layers."""
    columns = [window.mean.get(f"{channel.name}.{name}") for name in NAMES]
    mean = window.mean.get(f"{channel.name}.mean")
    if mean is None or any(column is None or np.isnan(column).all() for column in columns):
        return None
    layers = np.array(columns)
    parts = in_own_unit(channel, mean, layers)
    points = pd.DataFrame(dict(zip(NAMES, parts, strict=True)))
    return LayerData(points, _sentence(window, channel, is_level, layers, parts), _extent(parts))


def _extent(parts: Array) -> tuple[float, float]:
    """Where the layers [3, n] are but for a few frames: what a model does in its first minutes would press all else flat."""
    low, high = np.nanquantile(parts, (RARE, 1 - RARE))
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    air = 0.1 * (high - low) or 1.0
    return low - air, high + air


def in_own_unit(channel: Channel, mean: Array, layers: Array) -> Array:
    """Three layers [3, n] in the reading's unit; mean [n]: of the reading; layers [3, n] in the transformed unit.

    Under log1p each layer is the step that it makes in the reading, in the order of the layers.
    """
    if channel.transform != "log1p":
        return layers
    stairs = _forward(channel, mean) - layers.sum(axis=0)
    stairs = _backward(channel, stairs + np.concatenate((np.zeros((1, len(mean))), np.cumsum(layers, axis=0))))
    return np.diff(stairs, axis=0)


def _sentence(window: Window, channel: Channel, is_level: bool, layers: Array, parts: Array) -> str:
    """layers: in the transformed unit; parts: in the reading's."""
    expected = float(np.nanmean(window.mean[f"{channel.name}.mean"]))
    if not np.nanmax(np.abs(layers[0])):
        return labels.ALONE_LINE
    pull = 1.0 if is_level else float(np.nanmean(window.mean.get(f"{channel.name}.pull", np.array([0.0]))))
    if pull < LEAST_PULL:
        shared, deviation, local = (float(np.nanmean(part)) for part in parts)
        return labels.step_line(channel.unit, shared, deviation + local)
    gap = float(np.nanmean(layers[1] + layers[2])) / pull
    fleet = float(_backward(channel, _forward(channel, np.array(expected)) - gap))
    return labels.level_line(channel.unit, expected, fleet, EVEN * _half_width(window, channel.name))


def _forward(channel: Channel, values: Array) -> Array:
    """Readings in the transformed unit."""
    return np.log1p(np.maximum(values, np.nextafter(-1.0, 0.0))) if channel.transform == "log1p" else values


def _backward(channel: Channel, values: Array) -> Array:
    return np.expm1(np.minimum(values, 700.0)) if channel.transform == "log1p" else values


def _half_width(window: Window, channel: str) -> float:
    """Of the band, mean; 0 where it is not known."""
    low, high = (window.mean.get(f"{channel}.{side}") for side in ("low", "high"))
    return 0.0 if low is None or high is None else float(np.nanmean(high - low)) / 2
