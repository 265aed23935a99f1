"""A fleet on a wire with delays, run again from what a recorder with delays of its own heard: every bit is the same."""

from __future__ import annotations

from collections import Counter

import pytest
from wire_streams import Wire

from fleetgp.recording.message import Message, Recorded
from fleetgp.runtime.settings import load
from fleetgp.wire import topics
from simulator.recorded_fleet import Outcome, run_again
from simulator.run_recorded import report, totals

AGENTS = {"a": 0.0, "b": 0.0, "c": 17.0, "d": 22.0}
# on a busy machine: each misses the end of a round, or two openings
STALLS = [("a", 3.9, 6.25), ("b", 10.8, 17.0), ("c", 23.9, 28.2), ("d", 27.8, 29.9)]


def again(messages: list[Recorded]) -> Outcome:
    return run_again(lambda: iter(messages), load(None, {}, {}))


@pytest.mark.parametrize("seed", range(9))
def test_whatever_the_order_in_which_the_recorder_heard_it_everything_is_said_again(seed: int) -> None:
    jitter_ms = (5.0, 60.0, 300.0)[seed % 3]
    stalls = STALLS if seed >= 6 else ()
    messages = Wire(seed, AGENTS, jitter_ms, loss=0.05 * (seed % 2), stalls=stalls).run(40.0)
    outcome = again(messages)
    said = Counter(
        topics.parse(one.topic).kind for one in messages if isinstance(one, Message) and topics.parse(one.topic)
    )  # type: ignore[union-attr]
    total = totals(outcome)
    for kind, topic in (
        ("predictions", "predictions"),
        ("events", "events"),
        ("models", "model"),
        ("notices", "round"),
    ):
        assert total[kind].counts["same"] == said[topic], total[kind].first
    assert total["answers"].counts["same"] == said["summary"] + said["bootstrap"], total["answers"].first
    assert report(outcome)["as_recorded"]
    assert said["events"] >= 2
    assert said["model"] >= 4
