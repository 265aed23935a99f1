"""Turns rows of one agent into what the device page draws. Pure: no Streamlit, no clock, no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dashboard import labels, layers
from dashboard.layers import LayerData
from dashboard.local_times import local_times
from dashboard.quality import channel_names
from dashboard.view import View
from fleetgp.arrays import Array
from fleetgp.schema import Channel
from fleetgp.store.base import Window
from fleetgp.wire.messages import AnomalyEvent

Places = NDArray[np.int64]  # indices

MAX_POINTS = 600
LONG_GAP = 5  # usual gaps between two points, beyond which a line is not drawn across


BAND_SHOWN = 0.1  # share of bands that may reach beyond the value axis, on each side
AIR = 0.05


@dataclass(frozen=True)
class Look:
    """What a viewer looks at: an agent, the last span_ms (None: everything), with layers or without, in a time zone."""

    agent: str
    span_ms: int | None
    zone: str
    with_layers: bool = True


@dataclass(frozen=True)
class Request:
    """Which rows of the store a device page needs."""

    columns: tuple[str, ...]
    start_ms: int
    end_ms: int
    max_points: int


@dataclass(frozen=True)
class ChannelData:
    """points: at, observed, observed_low, observed_high, mean, low, high, z, look; times in the zone asked for.

    look: "anomaly" inside an event that blames the channel, else "reading". readings: how many points have a reading.
    extent: span of the value axis. layers: what the expectation is made of, None where that is not told.
    """

    name: str
    unit: str
    points: pd.DataFrame
    readings: int
    extent: tuple[float, float]
    layers: LayerData | None = None


@dataclass(frozen=True)
class DeviceData:
    """score: at, score, threshold. spans: start, end of the events in range. step_ms: span of a point, 0 for one frame.
    is_level: whether layers are parts of the level.
    """

    channels: tuple[ChannelData, ...]
    score: pd.DataFrame
    spans: pd.DataFrame
    step_ms: int
    first_ms: int
    last_ms: int
    is_level: bool = False


def default_range(view: View, agent: str) -> str:
    """The shortest range that shows a good part of MAX_POINTS frames at the agent's interval."""
    schema, series = view.schema(agent), view.predictions.get(agent)
    if schema is not None:
        interval_ms = float(schema.interval_ms)
    elif series is not None:
        interval_ms = (series.last_ms - series.first_ms) / max(1, series.rows - 1)
    else:
        interval_ms = 1000.0
    for name, span_ms in labels.RANGES_MS.items():
        if span_ms is not None and span_ms >= interval_ms * MAX_POINTS / 5:
            return name
    return "All"


def count_channels(view: View, agent: str) -> int:
    """How many channels an agent predicts, as far as it has said."""
    schema, series = view.schema(agent), view.predictions.get(agent)
    if schema is not None:
        return len(schema.channels)
    return len(channel_names(series.channels)) if series is not None else 0


def device_request(view: View, agent: str, span_ms: int | None, with_layers: bool = True) -> Request | None:
    """What to ask the store for: the last ``span_ms`` (None: everything) before the agent's newest frame."""
    series = view.predictions.get(agent)
    if series is None:
        return None
    start_ms = series.first_ms if span_ms is None else max(series.first_ms, series.last_ms - span_ms + 1)
    columns = tuple(name for name in series.channels if with_layers or not name.endswith(layers.COLUMNS))
    return Request(columns, start_ms, series.last_ms, MAX_POINTS)


def device_data(view: View, agent: str, window: Window, zone: str) -> DeviceData:
    """All that a device page draws, from rows of the store. zone: IANA name in which times are shown."""
    start_ms, end_ms = (int(window.at_ms[0]), int(window.at_ms[-1])) if window.at_ms.size else (0, 0)
    events = [event for event in view.events if event.agent == agent]
    spans = _spans(events, start_ms, end_ms + window.step_ms)
    at_ms, breaks = _with_breaks(window.at_ms.astype(np.int64))
    schema = view.schema(agent)
    known = {channel.name: channel for channel in schema.channels} if schema is not None else {}
    order = list(schema.channel_names) if schema is not None else []
    names = channel_names(list(window.mean))
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    at = local_times(at_ms, zone)
    channels = []
    for name in names:
        points = _channel_points(window, name, breaks)
        points.insert(0, "at", at)
        blamed = _spans([event for event in events if is_blamed(event, name)], start_ms, end_ms + window.step_ms)
        points["look"] = np.where(_inside(at_ms, blamed, window.step_ms), "anomaly", "reading")
        readings, channel = int(points["observed"].notna().sum()), known.get(name, Channel(name=name))
        split = layers.layer_data(window, channel, layers.is_level(schema))
        if split is not None:
            split = _with_times(split, at, breaks)
        channels.append(ChannelData(name, channel.unit, points, readings, value_extent(points), split))
    size = window.at_ms.size
    score = pd.DataFrame(
        {
            "at": at,
            "score": _column(window.high, "score", breaks, size),
            "threshold": _column(window.mean, "threshold", breaks, size),
        }
    )
    half_ms = (window.step_ms or _usual_gap_ms(window.at_ms)) // 2  # so that an event of one frame has a width
    shown = pd.DataFrame(
        {
            "start": local_times(spans["start"].to_numpy(np.int64) - half_ms, zone),
            "end": local_times(spans["end"].to_numpy(np.int64) + half_ms, zone),
        }
    )
    return DeviceData(tuple(channels), score, shown, window.step_ms, start_ms, end_ms, layers.is_level(schema))


def _with_times(split: LayerData, at: pd.Series, breaks: Places) -> LayerData:
    """Layers with the times of their points, and the breaks of lines."""
    columns = {name: _column(split.points, name, breaks, len(split.points)) for name in layers.NAMES}
    return replace(split, points=pd.DataFrame({"at": at, **columns}))


def value_extent(points: pd.DataFrame) -> tuple[float, float]:
    """Every reading and expectation, and the band where it is usual: one very wide band, as before the first frames
    are learnt, would press all else flat. A little air on both sides; (0, 1) where there is nothing.
    """
    lows = [points["observed_low"].min(), points["mean"].min(), points["low"].quantile(BAND_SHOWN)]
    highs = [points["observed_high"].max(), points["mean"].max(), points["high"].quantile(1 - BAND_SHOWN)]
    low, high = float(np.nanmin([*lows, np.inf])), float(np.nanmax([*highs, -np.inf]))
    if not low <= high:
        return 0.0, 1.0
    air = AIR * (high - low) or 0.01 * abs(high) or 1.0
    return low - air, high + air


def is_blamed(event: AnomalyEvent, channel: str) -> bool:
    """Whether the channel had a part in the event worth naming; all channels have where the event names none."""
    shares = [share for share in event.blame.values() if share >= labels.NAMED_SHARE]
    return not shares or event.blame.get(channel, 0.0) >= labels.NAMED_SHARE


def _usual_gap_ms(at_ms: Array) -> int:
    return int(np.median(np.diff(at_ms))) if at_ms.size > 1 else 1000


def _with_breaks(at_ms: Array) -> tuple[Array, Places]:
    """Times with one more point in the middle of every long gap, and where those points go, so that lines break there."""
    if at_ms.size < 3:
        return at_ms, np.empty(0, dtype=np.int64)
    gaps = np.diff(at_ms)
    breaks = (np.flatnonzero(gaps > LONG_GAP * _usual_gap_ms(at_ms)) + 1).astype(np.int64)
    return np.insert(at_ms, breaks, at_ms[breaks - 1] + gaps[breaks - 1] // 2), breaks


def _column(values: Mapping[str, Array] | pd.DataFrame, name: str, breaks: Places, size: int) -> Array:
    """One column with NaN at the breaks; all NaN where the store has none of that name."""
    column = values.get(name)
    return np.insert(column if column is not None else np.full(size, np.nan), breaks, np.nan)


def _channel_points(window: Window, name: str, breaks: Places) -> pd.DataFrame:
    """Values of one channel; where a point stands for many frames, z is the one farthest from zero."""
    size = window.at_ms.size
    lowest, highest = (_column(side, f"{name}.z", breaks, size) for side in (window.low, window.high))
    return pd.DataFrame(
        {
            "observed": _column(window.mean, f"{name}.observed", breaks, size),
            "observed_low": _column(window.low, f"{name}.observed", breaks, size),
            "observed_high": _column(window.high, f"{name}.observed", breaks, size),
            "mean": _column(window.mean, f"{name}.mean", breaks, size),
            "low": _column(window.mean, f"{name}.low", breaks, size),
            "high": _column(window.mean, f"{name}.high", breaks, size),
            "z": np.where(np.abs(lowest) > np.abs(highest), lowest, highest),
        }
    )


def _spans(events: Sequence[AnomalyEvent], start_ms: int, end_ms: int) -> pd.DataFrame:
    """Start and end of the events that reach into the range, cut to it; an open one lasts to the range's end."""
    rows = []
    for event in events:
        until_ms = event.end_ms if event.end_ms is not None else end_ms
        if event.start_ms <= end_ms and until_ms >= start_ms:
            rows.append((max(event.start_ms, start_ms), min(until_ms, end_ms)))
    return pd.DataFrame(sorted(rows), columns=["start", "end"], dtype=np.int64)


def _inside(at_ms: Array, spans: pd.DataFrame, step_ms: int) -> Array:
    """Which points lie in a span; a point that stands for ``step_ms`` counts when the two overlap."""
    found = np.zeros(at_ms.size, dtype=bool)
    for start, end in spans.itertuples(index=False):
        found |= (at_ms + step_ms >= start) & (at_ms <= end)
    return found


def events_frame(view: View, agent: str | None, zone: str) -> pd.DataFrame:
    """Events of one agent, or of all with the agent's name in front; latest first, in words."""
    rows = []
    for event in view.events:
        if agent is not None and event.agent != agent:
            continue
        row = {labels.AGENT: event.agent} if agent is None else {}
        rows.append(row | _event_row(view, event, zone))
    frame = pd.DataFrame(rows)
    if not frame.empty and not frame[labels.EVENT_NOTE].any():
        frame = frame.drop(columns=labels.EVENT_NOTE)
    return frame


def _event_row(view: View, event: AnomalyEvent, zone: str) -> dict[str, object]:
    series = view.predictions.get(event.agent)
    newest_ms = series.last_ms if series is not None else event.start_ms
    end_ms = event.end_ms if event.end_ms is not None else newest_ms
    return {
        labels.EVENT_START: local_times(np.array([event.start_ms]), zone)[0],
        labels.EVENT_STATE: labels.EVENT_STATES[event.state == "closed"],
        labels.EVENT_DURATION: labels.duration(max(0, end_ms - event.start_ms) / 1000),
        labels.EVENT_PEAK: event.peak_score,
        labels.EVENT_BLAME: labels.blame(event.blame),
        labels.EVENT_NOTE: event.note,
    }
