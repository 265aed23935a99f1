"""Where a recording may lack messages: between connections, at the end, and where it could not keep up."""

from __future__ import annotations

from broker_bridge.continuity import AWAY, Continuity
from fleetgp.recording.message import Gap


def test_a_gap_lasts_from_the_last_message_to_the_next_connection() -> None:
    flow = Continuity(0)
    assert flow.connected(1, 10) is None, "what was before the first connection belongs to no recording"
    flow.heard(50)
    assert flow.connected(1, 60) is None, "the same connection told twice"
    assert flow.connected(3, 90) == Gap(50, 90, AWAY)
    assert flow.connected(4, 95) == Gap(90, 95, AWAY), "a connection on which nothing came worked from its begin on"


def test_a_recording_that_ends_without_a_connection_has_a_gap_at_its_end() -> None:
    flow = Continuity(0)
    flow.connected(1, 10)
    flow.heard(20)
    assert flow.ended(70, is_connected=True) is None
    assert flow.ended(70, is_connected=False) == Gap(20, 70, AWAY)


def test_what_was_thrown_away_is_told_once_with_its_span_and_number() -> None:
    flow = Continuity(5)
    assert flow.thrown_away(0, 10) is None
    gap = flow.thrown_away(7, 20)
    assert gap is not None
    assert (gap.start_ns, gap.end_ns) == (10, 20)
    assert "7 thrown away" in gap.why
    assert flow.thrown_away(7, 30) is None
    assert flow.thrown_away(9, 40) == Gap(30, 40, gap.why.replace("7", "2"))


def test_a_clock_that_tells_of_a_connection_before_the_last_message_makes_no_gap_backwards() -> None:
    flow = Continuity(0)
    flow.connected(1, 10)
    flow.heard(100)
    assert flow.connected(2, 90) == Gap(100, 100, AWAY)
