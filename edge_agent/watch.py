"""One frame through an agent: foresee, score, calibrate, alarm, learn. Nothing here knows of fleets or brokers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from edge_agent.frames import Frame
from edge_agent.state import LONG_SILENCE, Count, Effect, OpenEvent, Publish, Shadow, State
from fleetgp import alarm as alarms
from fleetgp import calibrate, features, scaling
from fleetgp.arrays import Array, Mask
from fleetgp.errors import NotFinite, NumericalError
from fleetgp.gp import density, engine, layers
from fleetgp.gp import learner as learning
from fleetgp.gp.ring import SIZE
from fleetgp.schema import Transform
from fleetgp.score import blame, score
from fleetgp.wire.messages import AnomalyEvent, ChannelPrediction, Prediction

# after so many frames an anomaly that lasts is taken for the new normal and learnt
GATED_FRAMES = 60
UPDATE_EVERY = 30
# the local layer is placed after so many frames, all of which are still at hand
LOCAL_FRAMES = 256
# standard deviations beyond which a reading counts for the scale no further
MOST_SD = 30.0
# beyond this the tail says no more than "never"
MAX_SCORE = 300.0
# standard deviations of an input's own readings, from so many of them on
REACH = 8.0
REACH_FRAMES = 20


class Seen(NamedTuple):
    """What a frame turned out to be. is_taught: whether it may teach."""

    score: float
    is_taught: bool


def forward(name: Transform, value: float) -> float:
    """A reading in the unit that is learnt; NaN outside the transform's domain."""
    if name == "log1p":
        return float(np.log1p(value)) if value > -1 else np.nan
    return value


def backward(name: Transform, value: float) -> float:
    """A learnt value in the reading's own unit; kept finite."""
    return float(np.expm1(min(value, 700.0))) if name == "log1p" else value


def watch_each(state: State, frames: Iterable[Frame]) -> tuple[State, list[Effect]]:
    """State and effects after closed frames, one by one; one that no number comes of is counted and left out."""
    effects: list[Effect] = []
    for frame in frames:
        try:
            state, more = watch(state, frame)
        except NumericalError as err:
            more = [Count("numerical", 1, str(err))]
        effects += more
    return state, effects


def watch(state: State, frame: Frame) -> tuple[State, list[Effect]]:
    """State and effects after one closed frame."""
    state = _skip(state, frame.gap)
    schema = state.config.schema
    Q = len(schema.channels)
    values = np.array([forward(item.transform, v) for item, v in zip(schema.inputs, frame.values, strict=True)])
    effects = _outside(state, frame, values)
    state = msgspec.structs.replace(state, frame_count=state.frame_count + 1)
    if state.learner is None:
        return _first(state, values), effects
    known = state.learner
    inputs = _inputs(state, frame.at_ms, values[Q:])
    forecast = engine.foresee(known, inputs)
    if not (np.all(np.isfinite(forecast.mean)) and np.all(np.isfinite(forecast.sd))):
        raise NotFinite("what is known gives no finite prediction")
    if state.config.layers:
        forecast = engine.split(known, forecast)
    z = (values[:Q] - forecast.mean) / forecast.sd
    prediction = _prediction(state, frame, values[:Q], forecast, z)
    # the step to a channel's first reading is from a place nobody saw: it is neither odd nor worth learning
    is_first = state.moments.n[:Q] == 0
    state, seen, events = _judge(state, frame, np.where(is_first, np.nan, z))
    prediction = msgspec.structs.replace(prediction, is_alarmed=state.event is not None, score=seen.score)
    is_observed = bool(np.any(np.isfinite(z)))
    if is_observed:
        effects.append(Publish("predictions", prediction))
    effects += events
    state = msgspec.structs.replace(state, predicted=state.predicted + is_observed)
    is_unlearnable = is_first & engine.learns_steps(known)
    learnable = np.where(np.concatenate((is_unlearnable, np.zeros(len(values) - Q, dtype=bool))), np.nan, values)
    if not seen.is_taught:
        return _remember(_shadow(state, frame, learnable, forecast), values), effects
    state = _remember(_teach(state, forecast, learnable[:Q], _believable(values, forecast, is_first)), values)
    return _settle(state, frame.at_ms, is_first & np.isfinite(values[:Q])), effects


def _inputs(state: State, at_ms: int, now: Array) -> learning.Inputs:
    """What a frame is foreseen from; now [C]: its covariates, of which those known ahead count.

    Inputs go no further out than what this agent has learnt from (REACH): a linear law knows nothing of what lies far beyond
    its data, and without this one channel that jumps would drag the forecasts of all others with it. What stays out there
    widens the reach as soon as it is learnt.
    """
    schema = state.config.schema
    n, mean, square = state.moments
    reach = np.where(n >= REACH_FRAMES, REACH * np.sqrt(square / np.maximum(n, 1.0)), np.inf)
    Q = len(state.age)
    ahead = np.array([c.known_ahead for c in schema.covariates], dtype=bool) & np.isfinite(now)
    covariates = np.where(ahead, now, state.covariates)
    held = np.concatenate((state.age > 0, ~ahead & (state.covariate_age > 0))).astype(float)
    lags = np.clip(state.lags, mean[:Q] - reach[:Q], mean[:Q] + reach[:Q])
    within = np.clip(covariates, mean[Q:] - reach[Q:], mean[Q:] + reach[Q:])
    phases = features.phases(np.array([float(at_ms)]), schema)[0]
    inputs = np.concatenate((lags.ravel(), within, phases, held))
    return learning.Inputs(inputs, state.age, state.lags[0], rounding(state.resolution))


def _teach(state: State, forecast: engine.Law, taught: Array, believable: Array) -> State:
    """Learn a frame; on an own basis, look whether its scale still fits."""
    config = state.config
    assert state.learner is not None
    learner = engine.learn(state.learner, forecast, taught, config.forgetting)
    moments = scaling.observe(state.moments, believable)
    if state.basis == 0:
        learner = engine.rescale(learner, moments)
    if is_placing(state, learner.frames):
        learner = engine.place(learner, config.own_sizes, config.schema.kernel)
    return msgspec.structs.replace(state, learner=learner, moments=moments, shadow=None)


def is_placing(state: State, frames: int) -> bool:
    """Whether own layers get their places after so many frames. Frames may leap, when a shadow takes the learner's place."""
    assert state.learner is not None
    return LOCAL_FRAMES <= frames <= SIZE and engine.is_missing(state.learner, state.config.own_sizes)


def _shadow(state: State, frame: Frame, values: Array, forecast: engine.Law) -> State:
    """Of an anomaly only a shadow learns. What lasts GATED_FRAMES is learnt; by the shadow where it foresaw better.

    values [Q + C], NaN where not to be learnt.
    """
    assert state.learner is not None
    Q, event = len(state.age), state.event
    shadow = state.shadow or Shadow(state.learner, state.moments)
    state = msgspec.structs.replace(state, learner=engine.passed(state.learner, forecast))
    guess = engine.foresee(
        shadow.learner, _inputs(msgspec.structs.replace(state, moments=shadow.moments), frame.at_ms, values[Q:])
    )
    lead = density.log_density_of_one(guess, values[:Q]) - density.log_density_of_one(forecast, values[:Q])
    moments = scaling.observe(shadow.moments, _believable(values, guess, np.isnan(values[:Q])))
    shadow = Shadow(
        engine.learn(shadow.learner, guess, values[:Q], state.config.forgetting), moments, shadow.lead + lead
    )
    if event is None or event.frames < GATED_FRAMES:
        return msgspec.structs.replace(state, shadow=shadow)
    state = msgspec.structs.replace(state, event=msgspec.structs.replace(event, is_learnt=True), shadow=None)
    return msgspec.structs.replace(state, learner=shadow.learner, moments=moments) if shadow.lead > 0 else state


def rounding(resolution: Array) -> Array:
    """Standard deviation [Q] of what rounding to the sensor's resolution hides; 0 where it is not known.

    A slow stream in coarse steps stands still most of the time. Without this its law would be surer than its sensor, and
    every step an anomaly. A sensor without such steps soon shows a step so small that this is nothing.
    """
    return np.asarray(np.where(np.isfinite(resolution), resolution, 0.0) / math.sqrt(12))


def _believable(values: Array, forecast: engine.Law, is_first: Mask) -> Array:
    """Inputs [Q + C] as they count for the scale: a glitch of a channel no further out than what it may teach."""
    Q = len(is_first)
    reach = np.where(is_first, np.inf, MOST_SD * forecast.sd)
    channels = np.clip(values[:Q], forecast.mean - reach, forecast.mean + reach)
    return np.concatenate((channels, values[Q:]))


def _settle(state: State, at_ms: int, is_new: Mask) -> State:
    """Teach once, for channels just read for the first time [Q], that a device rests where it is met.

    Without it the fleet's dynamics would pull a device towards the fleet's mean until its own level is learnt.
    """
    if state.learner is None or not np.any(is_new):
        return state
    rest = engine.foresee(state.learner, _inputs(state, at_ms, np.full(len(state.covariates), np.nan)))
    level = np.where(is_new, state.lags[0], np.nan)
    learner = engine.settle(state.learner, rest, level, state.config.forgetting)
    return msgspec.structs.replace(state, learner=learner)


def _outside(state: State, frame: Frame, values: Array) -> list[Effect]:
    """Readings that their input's transform cannot take count as missing, and that is told."""
    lost = np.isfinite(frame.values) & ~np.isfinite(values)
    if not np.any(lost):
        return []
    names = [item.name for item, is_lost in zip(state.config.schema.inputs, lost, strict=True) if is_lost]
    return [Count("outside_transform", len(names), f"log1p needs a value above -1: {', '.join(names)[:200]}")]


def _first(state: State, values: Array) -> State:
    """Before anything is known: take the reading in, start a learner once every channel was seen or the wait is over."""
    moments = scaling.observe(state.moments, values)
    state = _remember(msgspec.structs.replace(state, moments=moments), values)
    Q = len(state.config.schema.channels)
    if np.all(moments.n[:Q] > 0) or (state.frame_count >= state.config.warmup_frames and np.any(moments.n[:Q] > 0)):
        learner = engine.begun(moments, state.config.schema, state.config.local_inducing, state.config.parts)
        centre = scaling.scaling(moments).centre
        lags = np.where(np.isfinite(state.lags), state.lags, centre[:Q])
        age = np.where(moments.n[:Q] > 0, state.age, learning.MAX_AGE)
        covariates = np.where(np.isfinite(state.covariates), state.covariates, centre[Q:])
        state = msgspec.structs.replace(state, learner=learner, lags=lags, age=age, covariates=covariates)
    return state


def _skip(state: State, gap: int) -> State:
    """Ticks without any reading: what is held grows older."""
    if not gap:
        return state
    steps = min(gap, len(state.lags))
    lags = np.concatenate((np.repeat(state.lags[:1], steps, axis=0), state.lags))[: len(state.lags)]
    age = np.minimum(state.age + gap, learning.MAX_AGE)
    covariate_age = np.minimum(state.covariate_age + gap, learning.MAX_AGE)
    return msgspec.structs.replace(state, lags=lags, age=age, covariate_age=covariate_age)


def _remember(state: State, values: Array) -> State:
    """Push a frame's readings into the lags, holding over what is missing."""
    Q = len(state.config.schema.channels)
    present = np.isfinite(values)
    newest = np.where(present[:Q], values[:Q], state.lags[0])
    lags = np.concatenate((newest[None], state.lags[:-1]))
    # a channel's first reading, or the first after a long silence, stands for the lags before it, which nobody knows
    is_back = present[:Q] & (state.age >= LONG_SILENCE)
    lags = np.where(np.isfinite(lags) & ~is_back, lags, newest)
    age = np.where(present[:Q], 0.0, np.minimum(state.age + 1, learning.MAX_AGE))
    covariates = np.where(present[Q:], values[Q:], state.covariates)
    covariate_age = np.where(present[Q:], 0.0, np.minimum(state.covariate_age + 1, learning.MAX_AGE))
    step = np.abs(newest - state.lags[0])
    is_step = present[:Q] & (state.age == 0) & (step > 0)
    resolution = np.where(is_step, np.minimum(step, state.resolution), state.resolution)
    return msgspec.structs.replace(
        state, lags=lags, age=age, resolution=resolution, covariates=covariates, covariate_age=covariate_age
    )


def _prediction(state: State, frame: Frame, values: Array, forecast: engine.Law, z: Array) -> Prediction:
    reach = state.calibration.radius * forecast.sd
    told, channels = told_layers(state, forecast), {}
    for q, channel in enumerate(state.config.schema.channels):
        observed = float(frame.values[q])
        channels[channel.name] = ChannelPrediction(
            mean=backward(channel.transform, float(forecast.mean[q])),
            low=backward(channel.transform, float(forecast.mean[q] - reach[q])),
            high=backward(channel.transform, float(forecast.mean[q] + reach[q])),
            observed=observed if np.isfinite(z[q]) else None,
            z=float(z[q]) if np.isfinite(z[q]) else None,
            scale=float(forecast.scale[q]),
            degrees=float(forecast.degrees[q]),
            layers=tuple(told[q, :4].tolist()),
            pull=float(told[q, 4]) if told.size else 0.0,
        )
    return Prediction(
        at_ms=frame.at_ms,
        agent=state.config.agent_id,
        sequence=state.predicted,
        channels=channels,
        score=0.0,
        threshold=state.alarm.threshold,
        basis=state.basis,
        round=state.round,
        log_density=density.log_density_of_one(forecast, np.where(np.isfinite(z), values, np.nan)),
    )


def told_layers(state: State, forecast: engine.Law) -> Array:
    """Layers and pull [..., Q, 5] as a prediction tells them, [..., Q, 0] where none are asked for."""
    if forecast.layers is None:
        return np.zeros((*forecast.mean.shape, 0))
    # of a fleet that was never heard of nothing can be known
    return forecast.layers if state.basis else layers.of_one_who_is_alone(forecast.layers)


def _judge(state: State, frame: Frame, z: Array) -> tuple[State, Seen, list[Effect]]:
    """Score, calibrate and alarm."""
    config = state.config
    value = min(score(z), MAX_SCORE)
    calibration = calibrate.step(state.calibration, z)
    state = msgspec.structs.replace(state, calibration=calibration)
    is_scored = bool(np.any(np.isfinite(z))) and state.predicted >= config.warmup_frames
    if not is_scored:  # before the warm-up is over no score means anything, and nothing is no end of an event
        return state, Seen(0.0, _is_taught(state)), []
    alarm, change = alarms.step(state.alarm, value, config.alarm_score)
    state = msgspec.structs.replace(state, alarm=alarm)
    if change == "none":
        return state, Seen(value, True), []
    state, effects = _report(state, frame, z, value, change)
    return state, Seen(value, _is_taught(state)), effects


def _is_taught(state: State) -> bool:
    """Whether frames teach the learner: those of an event that has not lasted do not."""
    return state.event is None or state.event.is_learnt


def _report(state: State, frame: Frame, z: Array, value: float, change: alarms.Change) -> tuple[State, list[Effect]]:
    """Open, go on with, or close the event of this agent."""
    squares = np.where(np.isfinite(z), np.minimum(np.abs(z), 1e6), 0.0) ** 2
    open_ = state.event
    if open_ is None:
        name = f"{state.config.agent_id}-{frame.at_ms}"
        event = OpenEvent(name, frame.at_ms, 1, value, frame.at_ms, squares)
    else:
        peak = (value, frame.at_ms) if value > open_.peak_score else (open_.peak_score, open_.peak_ms)
        event = OpenEvent(
            open_.event_id, open_.start_ms, open_.frames + 1, *peak, open_.squares + squares, open_.is_learnt
        )
    state = msgspec.structs.replace(state, event=None if change == "closed" else event)
    is_due = change != "going" or event.frames % UPDATE_EVERY == 0 or event.frames == GATED_FRAMES + 1
    return state, [Publish("events", _message(state, frame, event, change), is_durable=True)] if is_due else []


def _message(state: State, frame: Frame, event: OpenEvent, change: alarms.Change) -> AnomalyEvent:
    note = "lasts: taken for the new normal and learnt" if event.is_learnt else ""
    return AnomalyEvent(
        at_ms=frame.at_ms,
        agent=state.config.agent_id,
        event_id=event.event_id,
        state="updated" if change == "going" else "closed" if change == "closed" else "opened",
        start_ms=event.start_ms,
        end_ms=frame.at_ms if change == "closed" else None,
        frames=event.frames,
        peak_score=event.peak_score,
        peak_ms=event.peak_ms,
        blame=blame(np.sqrt(event.squares), state.config.schema.channel_names),
        note=note,
    )
