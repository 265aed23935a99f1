"""An agent as a process of its own: it does what the brain does, whatever is done to the process and its readings."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from bench import Bench, Desk, Running, topic_of
from streams import STREAM, by_the_brains, write_recording, write_spec

from fleetgp.wire.messages import AnomalyEvent, Prediction

pytestmark = pytest.mark.broker

ROWS = 300


@pytest.fixture
def recording(tmp_path: Path) -> tuple[Path, Path]:
    """A recording of the device pump-1, and its spec."""
    return write_recording(tmp_path / "pump-1.csv", ROWS), write_spec(tmp_path / "spec.toml")


def play(bench: Bench, recording: tuple[Path, Path], speed: float) -> Running:
    file, spec = recording
    flags = ["--recording", str(file), "--spec", str(spec), "--speed", str(speed)]
    return bench.run("devices", "--broker", bench.url, "--data-dir", str(bench.data), *flags)


def assert_same(found: list[Prediction], truth: list[Prediction]) -> None:
    """Every frame once, in order, and with the same numbers.

    1e-9: what the contract allows; a number in JSON is exact, so that in truth not a bit differs.
    """
    assert [p.sequence for p in found] == [p.sequence for p in truth]
    assert [p.at_ms for p in found] == [p.at_ms for p in truth]
    for ours, theirs in zip(found, truth, strict=True):
        assert (ours.is_alarmed, ours.basis) == (theirs.is_alarmed, theirs.basis)
        assert ours.score == pytest.approx(theirs.score, rel=1e-9, abs=1e-9)
        for name, law in theirs.channels.items():
            expected = [np.nan if v is None else v for v in (law.mean, law.low, law.high, law.observed, law.z)]
            got = ours.channels[name]
            values = [np.nan if v is None else v for v in (got.mean, got.low, got.high, got.observed, got.z)]
            np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)


def assert_same_events(found: list[AnomalyEvent], truth: list[AnomalyEvent]) -> None:
    """The same but for rounding: how many frames the process takes at once is for the broker to say."""
    for ours, theirs in zip(found, truth, strict=True):
        assert ours.blame == pytest.approx(theirs.blame, rel=1e-9)
        assert ours.peak_score == pytest.approx(theirs.peak_score, rel=1e-9)
        assert msgspec.structs.replace(ours, blame=theirs.blame, peak_score=theirs.peak_score) == theirs


def once_each(predictions: list[Prediction]) -> list[Prediction]:
    """By sequence; one that was published again after a kill must be the same to the last bit."""
    by_sequence: dict[int, Prediction] = {}
    for prediction in predictions:
        assert by_sequence.setdefault(prediction.sequence, prediction) == prediction
    return [by_sequence[key] for key in sorted(by_sequence)]


def test_a_recording_through_the_broker_gives_what_the_backtest_gives(
    bench: Bench, desk: Desk, recording: tuple[Path, Path], broker: object
) -> None:
    """Predictions, scores and events are those of the brains on the simulated clock."""
    truth, events = by_the_brains("pump-1", *recording)
    agent = bench.agent("pump-1", STREAM, agent__clock="recording")
    desk.until(lambda: desk.is_online("pump-1"))
    assert play(bench, recording, speed=1000).wait() == 0
    desk.until(lambda: len(desk.predictions("pump-1")) >= len(truth))
    desk.until(lambda: len(desk.events("pump-1")) >= len(events))
    assert agent.stop() == 0
    desk.listen(0.2)
    assert_same(desk.predictions("pump-1"), truth)
    assert_same_events(desk.events("pump-1"), events)
    assert {event.state for event in events} >= {"opened", "closed"}


def test_an_agent_that_is_killed_again_and_again_goes_on_as_if_never_disturbed(
    bench: Bench, desk: Desk, recording: tuple[Path, Path], broker: object
) -> None:
    """No reading is lost, none is learnt twice: what is published is what an undisturbed agent publishes."""
    truth, _ = by_the_brains("pump-1", *recording)

    def start() -> Running:
        desk.forget(topic_of("pump-1", "status"))
        running = bench.agent("pump-1", STREAM, agent__clock="recording", agent__snapshot_s=1)
        desk.until(lambda: desk.is_online("pump-1"))
        return running

    def predicted() -> int:
        return len(once_each(desk.predictions("pump-1")))

    agent = start()
    devices = play(bench, recording, speed=50)
    desk.until(lambda: predicted() >= len(truth) // 6)
    agent.kill()  # at work
    agent = start()
    desk.listen(0.5)
    agent.kill()  # while it waits for what the broker owes it
    agent = start()
    assert devices.wait() == 0
    desk.until(lambda: predicted() == len(truth))
    assert agent.stop(signal.SIGINT) == 0
    assert_same(once_each(desk.predictions("pump-1")), truth)
