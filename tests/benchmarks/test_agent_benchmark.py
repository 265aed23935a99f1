"""The arithmetic of the agent's benchmark, and that the stream it makes is what it says."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import agent, agent_engine, agent_process, agent_stream, agent_timing
from benchmarks.agent_process import Outcome, Sample
from benchmarks.report import Report
from edge_agent.config import agent_config
from edge_agent.frames import Sample as Reading
from edge_agent.frames import add, init
from edge_agent.watch import LOCAL_FRAMES
from fleetgp import features
from fleetgp.payloads import read
from fleetgp.runtime.settings import load


@pytest.fixture
def samples() -> list[Sample]:
    """A steep start, then a slow growth with noise on it."""
    rng = np.random.default_rng(0)
    frames = np.arange(0, 100_001, 250)
    rss_mb = np.where(
        frames < 10_000, 40 + frames / 1000, 50 + 0.3 * frames / 100_000 + rng.normal(0, 0.05, len(frames))
    )
    return [Sample(int(n), float(mb)) for n, mb in zip(frames, rss_mb, strict=True)]


def test_the_slope_is_of_the_samples_after_the_first_frames(samples: list[Sample]) -> None:
    late = [one for one in samples if one.frames >= 10_000]
    truth = stats.theilslopes([one.rss_mb for one in late], [one.frames for one in late]).slope * 100_000
    assert agent_process.slope_per_100k(samples) == pytest.approx(truth, rel=1e-9)
    assert truth == pytest.approx(0.3, abs=0.05)


def test_two_looks_at_the_same_frame_leave_the_slope_a_number(samples: list[Sample]) -> None:
    """As where the last frames are told twice; no pair of them has a slope."""
    twice = [*samples, Sample(samples[-1].frames, samples[-1].rss_mb + 1.0)]
    late = [one for one in twice if one.frames >= 10_000]
    truth = stats.theilslopes([one.rss_mb for one in late], [one.frames for one in late]).slope * 100_000
    assert agent_process.slope_per_100k(twice) == pytest.approx(truth, rel=1e-9)


def test_no_slope_where_a_run_was_too_short(samples: list[Sample]) -> None:
    assert agent_process.slope_per_100k(samples[:42]) is None
    assert agent_process.slope_per_100k([]) is None
    assert agent_process.slope_per_100k(samples[:43]) is not None


def test_runs_take_turns_and_their_medians_are_told() -> None:
    called: list[tuple[str, int]] = []
    now_s = 0.0
    costs = {"a": [1.0, 9.0, 2.0], "b": [5.0, 4.0, 60.0]}

    def run(name: str, index: int) -> None:
        nonlocal now_s
        called.append((name, index))
        now_s += costs[name][index]

    runs = {"a": lambda index: run("a", index), "b": lambda index: run("b", index)}
    assert agent_timing.interleaved(runs, 3, clock=lambda: now_s) == {"a": 2.0, "b": 5.0}
    assert called == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_ratios_and_costs_by_channel_and_frame() -> None:
    seconds = {agent_timing.SINGLE: 0.0256, agent_timing.RIVER_LAW: 0.1024}
    timed = agent_timing.Timing(seconds, {}, channels=4, features=57, repeats=3)
    assert timed.ratio(agent_timing.RIVER_LAW, agent_timing.SINGLE) == pytest.approx(4.0)
    assert timed.per_channel_us(agent_timing.SINGLE) == pytest.approx(25.0)  # 256 frames of 4 channels
    assert timed.ratio(agent_timing.SINGLE, agent_timing.BATCH) is None
    assert timed.per_channel_us(agent_timing.BATCH) is None


def test_what_was_not_measured_is_not_judged(samples: list[Sample]) -> None:
    report = Report("agent", agent.BARS)
    agent.tell_timing(report, agent_timing.Timing({agent_timing.SINGLE: 1.0}, {}, 6, 57, 1))
    agent.tell_process(report, Outcome(samples[:17], sent=4001, lost=1, rounds=2, features=57, frames_per_s=1000.0))
    holds = {bar["name"]: bar["holds"] for bar in report.as_dict()["bars"]}
    assert holds == {
        "agent.rss_mb": True,
        "agent.rss_slope_mb_per_100k": None,
        "agent.speedup_river": None,
        "agent.speedup_batch": None,
        "agent.frames_lost": False,
        "agent.features": True,
    }


def test_a_quick_look_judges_no_speed(samples: list[Sample]) -> None:
    """The ratios are told as rows alone."""
    seconds = {agent_timing.RIVER_LAW: 1.0, agent_timing.SINGLE: 0.5, agent_timing.BATCH: 0.1}
    timed = agent_timing.Timing(seconds, {}, 6, 57, 1)
    quick, whole = Report("agent", agent.BARS), Report("agent", agent.BARS)
    agent.tell_timing(quick, timed, is_judged=False)
    agent.tell_timing(whole, timed)
    assert whole.figures["agent.speedup_river"] == 2.0
    assert "agent.speedup_river" not in quick.figures
    assert quick.figures["agent.speedup_batch_engine"] == 5.0  # it has no bar
    assert quick.rows == whole.rows
    assert 2.0 in [row["value"] for row in quick.rows]


def test_the_stream_asks_for_57_features_of_each_of_6_channels() -> None:
    assert agent_stream.schema().precision_size == 6 * 57 * 58 // 2


def test_the_stream_is_the_same_for_a_seed_and_stays_where_it_belongs() -> None:
    one, again, other = (np.array(list(islice(agent_stream.frames(seed), 5000))) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.allclose(one, other)
    Q = len(agent_stream.USUAL)
    swing = agent_stream.SWING * np.sin(2 * np.pi * np.arange(5000)[:, None] / 1440 + np.arange(Q))
    away = (one[:, :Q] - agent_stream.USUAL - swing) / agent_stream.NEW_SD
    assert np.abs(away).max() < 40
    # what is new in a frame is white and of the size that was said
    law = agent_stream.KEPT * np.eye(Q) + agent_stream.COUPLED * np.roll(np.eye(Q), 1, axis=1)
    assert np.abs(np.linalg.eigvals(law)).max() < 1
    known = np.column_stack((away[:-1], np.tanh(one[1:, Q:])))
    weights, *_ = np.linalg.lstsq(known, away[1:], rcond=None)
    assert np.abs(weights[:Q].T - law).max() < 0.06
    assert np.std(away[1:] - known @ weights, axis=0) == pytest.approx(np.ones(Q), abs=0.05)


def test_a_frame_as_its_device_says_it_is_a_frame_to_the_agent() -> None:
    """Complete, on the next tick, so that it closes at once and none is lost."""
    schema = agent_stream.schema()
    frames = init(len(schema.inputs), schema.interval_ms)
    for number, values in enumerate(islice(agent_stream.frames(0), 20)):
        body = agent_process.payload(schema, number, values)
        content = read(body)
        assert content.at_ms is not None
        told = tuple(float(content.values[item.name] or "nan") for item in schema.inputs)
        assert json.loads(body)["flow"] == pytest.approx(values[0], abs=1e-4)
        sample = Reading(content.at_ms, content.at_ms, tuple(range(len(told))), told)
        frames, closed, counts = add(frames, sample)
        assert [frame.tick for frame in closed] == [number]
        assert not counts


def test_the_engine_is_timed_as_an_agent_runs_it(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'[agent]\nid = "agent-1"\ntopic = "sensors/agent-1"\n{agent_stream.STREAM}')
    config = agent_config(load(file, {}, {}))
    assert config.forgetting == agent_engine.RULE
    assert (config.local_inducing, LOCAL_FRAMES) == (agent_engine.LOCAL, agent_engine.LOCAL_FRAMES)
    assert config.schema == agent_stream.schema()


def test_river_is_taught_what_the_engine_is_taught() -> None:
    """Features and target of a frame, against their definition."""
    schema = agent_stream.schema()
    values = np.array(list(islice(agent_stream.frames(3), 40)))
    learner = agent_engine.begin(schema, values)
    frame = agent_engine.prepare(schema, values)[10]  # the row 12: two lags before it
    Q, scale = len(schema.channels), learner.basis.scaling.scale
    assert frame.observed == pytest.approx(values[12, :Q])
    assert agent_engine.target(learner, frame) == pytest.approx((values[12, :Q] - values[11, :Q]) / scale[:Q])
    x = agent_engine.features(learner, frame)
    assert len(x) == 57 + 12  # shared with the fleet, and private
    # known ahead: valve and speed at the frame itself, the others a frame earlier
    covariates = np.concatenate((values[12, Q : Q + 2], values[11, Q + 2 :]))
    linear = [("lags", 1, values[11, :Q], slice(0, Q)), ("covariates", 13, covariates, slice(Q, Q + 4))]
    for block, first, now, columns in linear:
        scaled = (now - values[:, columns].mean(axis=0)) / scale[columns]
        assert x[first : first + len(now)] == pytest.approx(features.PRIOR_SD[block] * scaled)
    turn = 2 * np.pi * ((agent_stream.START_MS / 60_000 + 12) % 1440) / 1440
    day = features.PRIOR_SD["phases"] * np.array([f(k * turn) for k in (1, 2, 3) for f in (np.cos, np.sin)])
    assert x[17:23] == pytest.approx(day, abs=1e-9)
    assert not np.any(x[23:33])  # nothing is held over


def test_engine_and_river_agree_on_what_comes() -> None:
    """A comparison of speeds is of use only between two that do the same."""
    timed = agent_timing.measure(repeats=1, seed=0)
    assert set(timed.seconds) >= {agent_timing.SINGLE, agent_timing.RIVER_LAW, agent_timing.RIVER_MEAN}
    assert timed.features == 57 + 12
    assert timed.rmse[agent_timing.BATCH] == pytest.approx(timed.rmse[agent_timing.SINGLE], rel=1e-6)
    assert timed.rmse[agent_timing.SINGLE] == pytest.approx(timed.rmse[agent_timing.RIVER_LAW], rel=0.05)
    # the agent learnt its first block before the clock ran, as the engine did
    assert timed.rmse[agent_timing.AGENT_BATCH] == pytest.approx(timed.rmse[agent_timing.AGENT_SINGLE], rel=1e-6)
    assert timed.rmse[agent_timing.AGENT_SINGLE] == pytest.approx(timed.rmse[agent_timing.SINGLE], rel=0.02)
    assert timed.alarmed == 0


def test_river_forgets_by_the_half_life_of_the_long_memory() -> None:
    """Against weighted least squares with a prior that fades likewise."""
    rng = np.random.default_rng(0)
    X, Y, half_life = rng.normal(size=(256, 3)), rng.normal(size=(256, 2)), 40.0
    river = agent_timing._River(X, Y, has_law=False, half_life=half_life)
    river.run(0)
    weight = 0.5 ** (np.arange(254, -1, -1) / half_life)
    gram = (X[:255] * weight[:, None]).T @ X[:255] + 0.5 ** (255 / half_life) * np.eye(3)
    truth = np.linalg.solve(gram, (X[:255] * weight[:, None]).T @ Y[:255])
    assert river.means()[-2:] == pytest.approx(X[255] @ truth)
