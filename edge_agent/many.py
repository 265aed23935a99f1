"""Many frames through an agent at once, for recordings: what ``watch`` frame by frame gives, to 1e-9.

Chunks are optimistic. What stands before each frame (lags, ages, moments) follows from the readings alone, so that a chunk
of frames is foreseen and learnt as matrices, as if none of them were out of the ordinary. The first that is goes to
``watch``, which stays the reference, and the chunk ends before it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np

from edge_agent import history
from edge_agent.frames import Frame
from edge_agent.history import Before, Rows
from edge_agent.state import Effect, Publish, State
from edge_agent.watch import MAX_SCORE, MOST_SD, is_placing, told_layers, watch_each
from fleetgp import alarm as alarms
from fleetgp import calibrate
from fleetgp.alarm import Alarm
from fleetgp.arrays import Array, Mask
from fleetgp.errors import NumericalError
from fleetgp.gp import batch, density, moves
from fleetgp.gp.learner import Forecast, Learner
from fleetgp.schema import Channel
from fleetgp.score import scores
from fleetgp.wire.messages import ChannelPrediction, Prediction

MOST_FRAMES = 256
# fewer are faster one by one
LEAST_FRAMES = 4


class Taken(NamedTuple):
    """State and effects after a chunk; taken: how many frames that were; left: those after it that are for ``watch``."""

    state: State
    effects: list[Effect]
    taken: int
    left: int


class Judged(NamedTuple):
    """The first frames of a chunk, as far as they are ordinary.

    z [n, Q], is_observed [n], scores and joint log densities [n]; thresholds: of the alarm before each; alarm: after them all.
    """

    z: Array
    is_observed: Mask
    scores: list[float]
    densities: list[float]
    thresholds: list[float]
    alarm: Alarm


def watch_many(state: State, frames: list[Frame]) -> tuple[State, list[Effect]]:
    """State and effects after closed frames, in their order; one that no number comes of is counted and left out."""
    effects: list[Effect] = []
    if not frames:
        return state, effects
    table = history.rows(state.config.schema, frames)
    begin = 0
    while begin < len(frames):
        end = min(begin + MOST_FRAMES, len(frames))
        state, more, taken, left = _attempt(state, frames[begin:end], history.part(table, begin, end))
        effects += more
        begin += taken
        state, more = watch_each(state, frames[begin : begin + left])
        effects += more
        begin += left
    return state, effects


def _attempt(state: State, frames: list[Frame], table: Rows) -> Taken:
    """Take the ordinary ones that these frames begin with, where they are enough to be worth it."""
    is_calm = state.learner is not None and state.event is None and not state.alarm.is_open
    if not is_calm or not (np.all(np.isfinite(state.lags)) and np.all(np.isfinite(state.covariates))):
        return Taken(state, [], 0, 1)
    ordinary = min(_first(table.is_odd), _until_moved(state, table))
    if ordinary >= LEAST_FRAMES:
        known = history.before(state, table.values[:ordinary])
        ordinary = _first(known.is_new)
    if ordinary < LEAST_FRAMES:
        return Taken(state, [], 0, min(ordinary + 1, len(frames)))
    try:
        return _chunk(state, frames[:ordinary], history.part(table, 0, ordinary), known)
    except (NumericalError, np.linalg.LinAlgError):  # one by one tells which frame it is
        return Taken(state, [], 0, ordinary)


def _until_moved(state: State, table: Rows) -> int:
    """Frames before the first after which the learner's basis may change."""
    learner = state.learner
    assert learner is not None
    # a frame without a reading of any channel lets the learner's time stand still: its basis is looked at once more
    is_empty = bool(np.all(np.isnan(table.values[0, : len(state.age)])))
    for k in range(len(table.at_ms)):
        seen = learner.frames + k + (not is_empty)
        if is_placing(state, seen) or (state.basis == 0 and moves.may_rescale(seen)):
            return k
    return len(table.at_ms)


def _chunk(state: State, frames: list[Frame], table: Rows, known: Before) -> Taken:
    """Take frames that are ordinary by all that is known before they are foreseen, n >= 1."""
    assert isinstance(state.learner, Learner)
    inputs = history.foreseen_from(state, known, table.at_ms)
    observed, rule, is_split = table.values[:, : len(state.age)], state.config.forgetting, state.config.layers
    learner, forecast = batch.foresee_and_learn(state.learner, inputs, observed, rule, is_split)
    judged = _judge(state, forecast, observed)
    count = len(judged.thresholds)
    if not count:
        return Taken(state, [], 0, 1)
    if count < len(frames):
        learner, _ = batch.foresee_and_learn(state.learner, batch.part(inputs, 0, count), observed[:count], rule)
    radius, calibration = calibrate.steps(state.calibration, judged.z[:count])
    effects = _publications(state, frames[:count], _channels(state, table, forecast, judged, radius), judged)
    after = msgspec.structs.replace(
        history.after(state, known, count),
        learner=learner,
        shadow=None,
        calibration=calibration,
        alarm=judged.alarm,
        frame_count=state.frame_count + count,
        predicted=state.predicted + len(effects),
    )
    return Taken(after, effects, count, int(count < len(frames)))


def _judge(state: State, forecast: Forecast, observed: Array) -> Judged:
    """Score and alarm, up to the first frame that opens an alarm, has no finite law, or is too far out to count whole."""
    is_read, sd = np.isfinite(observed), forecast.sd
    is_known = np.isfinite(forecast.mean) & np.isfinite(sd)
    is_near = np.abs(observed - forecast.mean) <= MOST_SD * sd
    count = _first(np.any(~is_known | (is_read & ~is_near), axis=1))
    z = (observed[:count] - forecast.mean[:count]) / sd[:count]
    is_observed = np.any(is_read[:count], axis=1)
    predicted = state.predicted + np.cumsum(is_observed) - is_observed
    is_scored = is_observed & (predicted >= state.config.warmup_frames)
    value = np.minimum(scores(z), MAX_SCORE)
    heard = [one if told else None for one, told in zip(value.tolist(), is_scored.tolist(), strict=True)]
    alarm, thresholds = alarms.quiet(state.alarm, heard, state.config.alarm_score)
    densities = density.log_density(batch.first(forecast, count), observed[:count]).tolist()
    return Judged(z, is_observed, np.where(is_scored, value, 0.0).tolist(), densities, thresholds, alarm)


def _channels(
    state: State, table: Rows, forecast: Forecast, judged: Judged, radius: Array
) -> list[tuple[ChannelPrediction, ...]]:
    """What each channel was expected to be, by frame; radius [n, Q] of its interval."""
    count, made = len(radius), []
    mean, reach, layers = forecast.mean[:count], radius * forecast.sd[:count], told_layers(state, forecast)
    for q, channel in enumerate(state.config.schema.channels):
        ends = (_backward(channel, law[:, q]) for law in (mean, mean - reach, mean + reach))
        read = (table.raw[:count, q], judged.z[:count, q])
        columns = (*ends, *read, forecast.scale[:count, q], forecast.degrees[:count, q])
        laws = zip(*(column.tolist() for column in columns), strict=True)
        made.append([_channel(law, told) for law, told in zip(laws, layers[:count, q].tolist(), strict=True)])
    return list(zip(*made, strict=True))


def _channel(law: tuple[float, ...], layers: list[float]) -> ChannelPrediction:
    """Of one channel. law: mean, low, high, observed, z (NaN where nothing was read), scale, degrees."""
    mean, low, high, observed, z, scale, degrees = law
    is_read = math.isfinite(z)
    return ChannelPrediction(
        mean=mean,
        low=low,
        high=high,
        observed=observed if is_read else None,
        z=z if is_read else None,
        scale=scale,
        degrees=degrees,
        layers=tuple(layers[:4]),
        pull=layers[4] if layers else 0.0,
    )


def _publications(
    state: State, frames: list[Frame], channels: list[tuple[ChannelPrediction, ...]], judged: Judged
) -> list[Effect]:
    """Predictions of the frames in which anything was read."""
    names, agent = state.config.schema.channel_names, state.config.agent_id
    effects: list[Effect] = []
    for k in np.flatnonzero(judged.is_observed[: len(frames)]).tolist():
        prediction = Prediction(
            at_ms=frames[k].at_ms,
            agent=agent,
            sequence=state.predicted + len(effects),
            channels=dict(zip(names, channels[k], strict=True)),
            score=judged.scores[k],
            threshold=judged.thresholds[k],
            basis=state.basis,
            round=state.round,
            log_density=judged.densities[k],
        )
        effects.append(Publish("predictions", prediction))
    return effects


def _backward(channel: Channel, values: Array) -> Array:
    """Learnt values [n] in the reading's own unit, kept finite, as ``watch.backward`` makes them."""
    return np.asarray(np.expm1(np.minimum(values, 700.0))) if channel.transform == "log1p" else values


def _first(is_true: Mask) -> int:
    """Index of the first that is true; the length where none is."""
    return int(np.argmax(is_true)) if np.any(is_true) else len(is_true)
