"""A fleet on a wire with delays, run again from what a recorder with delays of its own heard: every bit is the same."""

from __future__ import annotations

from collections import Counter

import pytest
from wire_streams import Wire

from fleetgp.models import Model
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


# just before a model is told and a moment before their death is; the next models come before they are back
KILLS = [("a", 12.97, 22.5), ("b", 16.9, 25.6)]


def assert_all_is_said_again(messages: list[Recorded]) -> Counter[str]:
    """How many messages of each kind there were."""
    outcome = again(messages)
    addresses = [topics.parse(one.topic) for one in messages if isinstance(one, Message)]
    said = Counter(address.kind for address in addresses if address is not None)
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
    return said


@pytest.mark.parametrize("seed", range(9))
def test_whatever_the_order_in_which_the_recorder_heard_it_everything_is_said_again(seed: int) -> None:
    jitter_ms = (5.0, 60.0, 300.0)[seed % 3]
    stalls = STALLS if seed >= 6 else ()
    said = assert_all_is_said_again(Wire(seed, AGENTS, jitter_ms, loss=0.05 * (seed % 2), stalls=stalls).run(40.0))
    assert said["events"] >= 2
    assert said["model"] >= 4


def test_agents_of_other_models_are_run_again_as_their_status_says() -> None:
    models: dict[str, Model] = {"a": "global-only", "b": "alone", "d": "no-local"}
    messages = Wire(3, AGENTS, 60.0, loss=0.0, models=models).run(40.0)
    said = assert_all_is_said_again(messages)
    assert said["model"] >= 4
    summaries = {one.topic.split("/")[3] for one in messages if isinstance(one, Message) and "/summary" in one.topic}
    assert summaries == {"a", "c", "d"}


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_just_before_a_model_is_told(seed: int) -> None:
    """Whether it still took that model only what it says later tells."""
    said = assert_all_is_said_again(Wire(seed, AGENTS, (5.0, 60.0, 300.0)[seed], loss=0.0, kills=KILLS).run(40.0))
    assert said["model"] >= 4


def test_an_agent_that_comes_back_with_another_model_is_run_on_with_that() -> None:
    """Into the fleet and out of it, at a moment that is in no doubt."""
    models: dict[str, Model] = {"a": "alone"}
    changed: dict[str, Model] = {"a": "full", "b": "alone"}
    kills = [("a", 14.0, 15.5), ("b", 18.5, 19.5)]
    assert_all_is_said_again(Wire(5, AGENTS, 60.0, loss=0.0, kills=kills, models=models, changed=changed).run(40.0))
