"""Many frames at once are what they are one by one: the same effects in the same order, the same state after them."""

from __future__ import annotations

import os
from itertools import islice

import msgspec
import numpy as np
import pytest
from near import assert_near, assert_same_effects

from edge_agent import agent
from edge_agent import watch as watching
from edge_agent.frames import Frame, Sample
from edge_agent.many import watch_many
from edge_agent.state import AgentConfig, Count, Effect, ModelArrived, Publish, Readings, State
from edge_agent.watch import watch
from edge_agent.watch import watch_each as one_by_one
from fleetgp import placement
from fleetgp.gp import aggregate, message
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import Forgetting
from fleetgp.models import MODELS, Model, parts
from fleetgp.recording import csv, spec
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import to_tensor, to_triangles
from fleetgp.wire.messages import AnomalyEvent, FleetModel

START, TICK = 1_772_615_730_000, 60_000
CHUNKS = (1, 7, 256, 1000)
SEEDS = range(4)
SCHEMA = Schema(
    channels=(Channel(name="a"), Channel(name="dust", transform="log1p"), Channel(name="still")),
    covariates=(Covariate(name="weather"), Covariate(name="setpoint", known_ahead=True)),
    interval_s=60.0,
    phases=(86_400.0,),
    harmonics=2,
)


def rows(seed: int, count: int) -> np.ndarray:
    """Readings [count, 5] with everything in it: glitches, levels that shift for good, silences, missing cells, steps."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((count, 5))
    x = np.zeros((count, 5))
    for i in range(1, count):
        x[i] = 0.8 * x[i - 1] + noise[i]
    t = np.arange(count)
    x[:, 0] = np.round(20 + x[:, 0] + 2 * x[:, 4] + 3 * np.sin(2 * np.pi * t / 1440), 2)
    x[:, 1] = np.exp(1 + 0.3 * x[:, 1])
    x[:, 2] = 7.0
    x[rng.random((count, 5)) < 0.05] = np.nan
    for begin in rng.integers(150, count, 3):  # a silence of one channel, longer and shorter than it is remembered
        x[begin : begin + int(rng.integers(5, 60)), rng.integers(0, 5)] = np.nan
    x[rng.integers(100, count, 6), rng.integers(0, 2, 6)] *= 40.0
    shift = int(rng.integers(count // 3, count))
    x[shift:, 0] += 25.0
    x[rng.integers(0, count, 3), 1] = -5.0  # which log1p cannot take
    x[rng.integers(0, count, 4)] = np.nan
    return x


def frames(values: np.ndarray, seed: int, first: int = 0) -> list[Frame]:
    """Frames of these rows with a gap before some."""
    rng = np.random.default_rng(seed)
    result, tick = [], first
    for row in values:
        gap = int(rng.integers(1, 40)) if rng.random() < 0.006 else 0
        tick += gap
        result.append(Frame(START + tick * TICK, tick, row, gap))
        tick += 1
    return result


def in_chunks(state: State, given: list[Frame], size: int) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for begin in range(0, len(given), size):
        state, more = watch_many(state, given[begin : begin + size])
        effects += more
    return state, effects


def fresh(schema: Schema = SCHEMA, **changes: object) -> State:
    config = AgentConfig(agent_id="pump", schema=schema, is_live=False, alarm_score=5.0, layers=True)
    return agent.init(msgspec.structs.replace(config, **changes), START)


def model_of(state: State, inducing: int = 0) -> bytes:
    """The model of a fleet that this agent is all of, on a basis with so many inducing inputs."""
    schema = msgspec.structs.replace(state.config.schema, inducing=inducing)
    assert state.learner is not None
    basis = state.learner.basis
    if inducing:
        columns = placement.columns(basis.shape)
        centres = placement.start(inducing, len(columns)).place
        basis = basis._replace(shared=placement.place(schema.kernel, basis.shape, basis.scaling, centres))
    learner = learning.alone(basis)
    known = learner.knowledge
    term = message.Term(
        np.zeros((len(schema.channels), basis.size, basis.size)), np.zeros((len(schema.channels), basis.size))
    )
    if not inducing:
        term, _ = learning.summary(state.learner)
    belief = aggregate.posterior([term], known.prior_var)
    places = {} if basis.shared is None else {
        "inducing": to_tensor(basis.shared.Z), "lengthscale": to_tensor(basis.shared.lengthscale), "columns": basis.shared.columns,
    }  # fmt: skip
    return codec.encode(
        FleetModel(
            at_ms=START, round=3, origin=1, basis=1, schema=schema,
            centre=to_tensor(basis.scaling.centre), scale=to_tensor(basis.scaling.scale),
            precision=to_tensor(to_triangles(belief.precision)), shift=to_tensor(belief.shift),
            deviation_scale=to_tensor(known.deviation_var.mean(axis=0)), deviation_variance=to_tensor(known.deviation_var),
            prior_variance=to_tensor(known.prior_var), noise_variance=to_tensor(np.full(len(schema.channels), 0.3)),
            noise_frames=50.0, **places,
        )
    )  # fmt: skip


def events(effects: list[Effect]) -> list[AnomalyEvent]:
    return [e.message for e in effects if isinstance(e, Publish) and isinstance(e.message, AnomalyEvent)]


@pytest.mark.parametrize("seed", SEEDS)
def test_chunks_of_any_size_are_frames_one_by_one(seed: int) -> None:
    given = frames(rows(seed, 900), seed)
    state, effects = one_by_one(fresh(local_inducing=5 * (seed % 2)), given)
    assert {event.state for event in events(effects)} >= {"opened", "closed"}
    assert any(isinstance(effect, Count) and effect.reason == "outside_transform" for effect in effects)
    for size in CHUNKS:
        found, same = in_chunks(fresh(local_inducing=5 * (seed % 2)), given, size)
        assert_same_effects(same, effects)
        assert_near(found, state)


@pytest.mark.parametrize("inducing", [0, 6])
@pytest.mark.parametrize("size", CHUNKS)
def test_a_fleets_model_in_between_changes_nothing(size: int, inducing: int) -> None:
    """On the fleet's basis, scaled by another agent's readings, the agent's own is not looked after any more."""
    schema = msgspec.structs.replace(SCHEMA, inducing=inducing)
    other, _ = one_by_one(fresh(schema), frames(rows(50, 300), 50))
    arrived = ModelArrived(START, model_of(other, inducing))
    given = frames(rows(7, 700), 7)
    single, many_ = fresh(schema), fresh(schema)
    for part in (given[:150], given[150:400], given[400:]):
        single, effects = one_by_one(single, part)
        many_, same = in_chunks(many_, part, size)
        assert_same_effects(same, effects)
        single, effects = agent.step(single, arrived)
        many_, same = agent.step(many_, arrived)
        assert effects == same == []
    assert single.basis == 1
    assert_near(many_, single)


@pytest.mark.parametrize("model", MODELS[1:])
def test_every_model_takes_many_at_once_as_one_by_one(model: Model) -> None:
    """On its own basis, past the placing of its own layers, and on the fleet's where its model takes that."""
    schema = msgspec.structs.replace(SCHEMA, inducing=6)
    other, _ = one_by_one(fresh(schema), frames(rows(50, 200), 50))
    arrived = ModelArrived(START, model_of(other, 6))
    given = frames(rows(12, 360), 12)
    single, many_ = fresh(schema, model=model), fresh(schema, model=model)
    for part in (given[:300], given[300:]):
        single, effects = one_by_one(single, part)
        many_, same = in_chunks(many_, part, 256)
        assert_same_effects(same, effects)
        single, many_ = agent.step(single, arrived)[0], agent.step(many_, arrived)[0]
    assert (single.basis > 0) == parts(model).shared
    assert_near(many_, single)


def test_a_joiner_that_knows_the_fleet_before_its_first_reading() -> None:
    """Its channels are new one after the other, and one never speaks."""
    other, _ = one_by_one(fresh(), frames(rows(50, 300), 50))
    start, _ = agent.step(fresh(), ModelArrived(START, model_of(other)))
    values = rows(8, 400)
    values[:90, 1] = np.nan
    values[:, 2] = np.nan
    given = frames(values, 8)
    state, effects = one_by_one(start, given)
    found, same = watch_many(start, given)
    assert_same_effects(same, effects)
    assert_near(found, state)


def test_a_short_refresh_and_a_long_warm_up() -> None:
    changes = {"forgetting": Forgetting(500.0, 50.0, 20), "warmup_frames": 300}
    given = frames(rows(9, 600), 9)
    state, effects = one_by_one(fresh(**changes), given)
    found, same = watch_many(fresh(**changes), given)
    assert_same_effects(same, effects)
    assert_near(found, state)


def test_a_reading_so_large_that_no_number_comes_of_it_is_counted_as_one_by_one() -> None:
    values = rows(10, 500)
    values[333, 0] = 1e308
    values[350, 0] = -1e308
    given = frames(values, 10)
    with np.errstate(all="ignore"):
        state, effects = one_by_one(fresh(), given)
        found, same = watch_many(fresh(), given)
    assert_same_effects(same, effects)
    assert_near(found, state)


def test_most_frames_of_an_ordinary_stream_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others cost is paid for frames out of the ordinary alone."""
    alone: list[Frame] = []

    def counted(state: State, frame: Frame) -> tuple[State, list[Effect]]:
        alone.append(frame)
        return watch(state, frame)

    values = np.random.default_rng(0).standard_normal((3000, 5)) + 5.0
    monkeypatch.setattr(watching, "watch", counted)
    watch_many(fresh(alarm_score=30.0), [Frame(START + k * TICK, k, row, 0) for k, row in enumerate(values)])
    assert len(alone) < 80  # 66 of a new learner, and the powers of two after which its scale is looked at


def test_an_empty_frame_where_the_scale_is_looked_at_is_looked_at_too() -> None:
    """No channel is read, the learner's time stands still at a power of two, and a covariate leaps out of its scale."""
    rng = np.random.default_rng(2)
    start = fresh(alarm_score=30.0)
    given = [Frame(START + k * TICK, k, row, 0) for k, row in enumerate(rng.standard_normal((540, 5)) + 5.0)]
    k = 0
    while start.learner is None or start.learner.frames < 512:
        start, _ = watch(start, given[k])
        k += 1
    given[k] = Frame(given[k].at_ms, k, np.array([np.nan, np.nan, np.nan, 1e4, np.nan]), 0)
    state, effects = one_by_one(start, given[k:])
    assert start.learner is not None
    assert state.learner is not None
    assert state.learner.basis.scaling.scale[3] > 2 * start.learner.basis.scaling.scale[3]
    found, same = watch_many(start, given[k:])
    assert_same_effects(same, effects)
    assert_near(found, state)


def test_no_frame_is_nothing() -> None:
    state = fresh()
    assert watch_many(state, []) == (state, [])


def test_a_backlog_of_readings_is_the_same_as_its_readings_one_by_one() -> None:
    """Through framing too: what is counted stands between the predictions where it was."""
    samples = []
    for frame in frames(rows(11, 300), 11):
        samples.append(Sample(frame.at_ms, frame.at_ms, tuple(range(5)), tuple(frame.values.tolist())))
        if frame.tick % 50 == 0:
            samples.append(samples[-1])
    state, effects = fresh(), []
    for sample in samples:
        state, more = agent.step(state, Readings(sample.at_ms, (sample,)))
        effects += more
    found, same = agent.step(fresh(), Readings(START, tuple(samples)))
    assert any(isinstance(effect, Count) and effect.reason == "duplicate" for effect in effects)
    assert_same_effects(same, effects)
    assert_near(found, state)


def test_a_real_recording(request: pytest.FixtureRequest) -> None:
    """A station of UCI 501, where the benchmarks' recordings are (BENCHMARK_DATA)."""
    folder = request.config.rootpath / os.environ.get("BENCHMARK_DATA", "../shared/data") / "beijing_air"
    files = sorted(folder.glob("*Aotizhongxin*.csv*"))
    if not files:
        pytest.skip(f"no recording here: {folder} has none of UCI 501")
    described = spec.load(request.config.rootpath / "examples" / "beijing.toml")
    given, last = [], -1
    for record in islice(csv.read(files[0], described, csv.Skipped()), 2500):
        tick = record.at_ms // 3_600_000
        given.append(Frame(record.at_ms, tick, np.array(record.values), max(0, tick - last - 1) if given else 0))
        last = tick
    start = fresh(described.schema, alarm_score=8.0)
    state, effects = one_by_one(start, given)
    assert events(effects)
    for size in (100, 2500):
        found, same = in_chunks(start, given, size)
        assert_same_effects(same, effects)
        assert_near(found, state)
