"""What a channel's expectation is made of, in the channel's own unit. Pure: no Streamlit, no clock, no file.

The store keeps three layers of each prediction in the transformed unit; the base is what they leave of the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dashboard import labels
from dashboard.labels import Parts
from fleetgp.arrays import Array
from fleetgp.schema import Channel, Schema
from fleetgp.store.base import Window

NAMES = ("shared", "deviation", "local")
COLUMNS = tuple(f".{name}" for name in NAMES)
EVEN = 0.01  # of half the band's width: an average move below it is none


@dataclass(frozen=True)
class LayerData:
    """points: the three layers, mean over the frames of each point. sentence: what they say, in words."""

    points: pd.DataFrame
    sentence: str


def is_level(schema: Schema | None) -> bool:
    """Whether layers are parts of the level, as with loadings that mix channels, not of the step from the last reading."""
    return getattr(schema, "mixing", "independent") == "ilmm"


def layer_data(window: Window, channel: Channel, is_level: bool) -> LayerData | None:
    """Of one channel, None where its predictions tell no layers."""
    columns = [window.mean.get(f"{channel.name}.{name}") for name in NAMES]
    mean = window.mean.get(f"{channel.name}.mean")
    if mean is None or any(column is None or np.isnan(column).all() for column in columns):
        return None
    base, *parts = in_own_unit(channel, mean, np.array(columns))
    return LayerData(
        pd.DataFrame(dict(zip(NAMES, parts, strict=True))), _sentence(window, channel, is_level, base, np.array(parts))
    )


def in_own_unit(channel: Channel, mean: Array, layers: Array) -> tuple[Array, ...]:
    """Base and three layers [n] in the reading's unit, with the sum mean [n]; layers [3, n] in the transformed unit.

    Under log1p each layer is the step that it makes in the reading, in the order of the layers.
    """
    if channel.transform != "log1p":
        return (mean - layers.sum(axis=0), *layers)
    base = np.log1p(np.maximum(mean, np.nextafter(-1.0, 0.0))) - layers.sum(axis=0)
    stairs = np.expm1(np.minimum(base + np.concatenate((np.zeros((1, len(mean))), np.cumsum(layers, axis=0))), 700.0))
    return (stairs[0], *np.diff(stairs, axis=0))


def _sentence(window: Window, channel: Channel, is_level: bool, base: Array, parts: Array) -> str:
    averages = [float(np.nanmean(part)) for part in parts]
    if is_level:
        return labels.level_line(channel.unit, float(np.nanmean(base)), Parts(*averages))
    if not np.nanmax(np.abs(parts[0])):
        return labels.ALONE_LINE
    low, high = (window.mean.get(f"{channel.name}.{side}") for side in ("low", "high"))
    half = np.nan if low is None or high is None else float(np.nanmean(high - low)) / 2
    return labels.step_line(
        channel.unit, Parts(*shares(window.low, window.high, channel.name)), Parts(*averages), EVEN * half
    )


def shares(low: Mapping[str, Array], high: Mapping[str, Array], channel: str) -> list[float]:
    """How much of the movement is each layer's; where a point stands for many frames, of the largest in each."""
    columns = [f"{channel}.{name}" for name in NAMES]
    sizes = [float(np.nanmean(np.maximum(np.abs(low[c]), np.abs(high[c])))) for c in columns]
    return [size / (sum(sizes) or 1.0) for size in sizes]
