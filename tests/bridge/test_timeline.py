"""What of a recording is played, under which topic, with which times, and when: against the recording itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_bridge.cut import Cut, Moment
from broker_bridge.selection import PAST_END
from broker_bridge.timeline import Due, Timeline
from fleetgp.errors import ConfigError
from fleetgp.recording.message import Gap, Message, Recorded

SECOND = 1_000_000_000
START = 1_772_617_890 * SECOND
NOW = 1_800_000_000 * SECOND


def message(offset_s: float, topic: str = "sensors/a", **fields: object) -> Message:
    at_ns = START + round(offset_s * SECOND)
    return Message(topic, json.dumps({"x": offset_s, "time": at_ns // 1_000_000}).encode(), at_ns, 0, **fields)  # type: ignore[arg-type]


def timeline(recorded: Sequence[Recorded], cut: Cut) -> Timeline:
    return Timeline(lambda begin_ns: iter(recorded), cut, now_ns=lambda: NOW)


def offsets_s(dues: Iterable[Due]) -> list[float]:
    return [due.offset_ns / SECOND for due in dues]


def times_s(dues: Iterable[Due]) -> list[float]:
    """The times inside the payloads, seconds after the recording's start."""
    return [json.loads(due.message.payload)["time"] / 1000 - START / SECOND for due in dues]


TEN = [message(float(second)) for second in range(10)]


def test_a_recording_is_played_as_it_was() -> None:
    mixed = [
        message(0, qos=1, is_retained=True),
        message(2, "sensors/b", content_type="application/json"),
        message(2, "hall/lamp", qos=1),
    ]
    dues = list(timeline(mixed, Cut()))
    assert offsets_s(dues) == [0, 2, 2]
    sent = [due.message for due in dues]
    assert [(m.topic, m.payload, m.qos, m.is_retained, m.content_type) for m in sent] == [
        (m.topic, m.payload, m.qos, m.is_retained, m.content_type) for m in mixed
    ]


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (Moment(3 * SECOND, is_offset=True), None, range(3, 10)),
        (None, Moment(3 * SECOND, is_offset=True), range(3)),
        (Moment(START + 4 * SECOND), Moment(START + 6 * SECOND), range(4, 6)),
        (Moment(START + 4 * SECOND), Moment(8 * SECOND, is_offset=True), range(4, 8)),
        (Moment(20 * SECOND, is_offset=True), None, range(0)),
    ],
)
def test_from_and_to_cut_out_a_span_that_starts_at_once(
    begin: Moment | None, end: Moment | None, expected: range
) -> None:
    cut_out = timeline(TEN, Cut(begin=begin, end=end))
    dues = list(cut_out)
    assert times_s(dues) == list(expected)
    assert offsets_s(dues) == [second - expected.start for second in expected]
    assert cut_out.left_out["before --from"] == (expected.start if expected else 10)


def test_topics_are_chosen_by_filters_and_renamed_by_a_prefix() -> None:
    recorded = [message(n, topic) for n, topic in enumerate(("sensors/a", "sensors/b/c", "hall/lamp", "$SYS/load"))]
    chosen = timeline(recorded, Cut(filters=("sensors/#", "hall/+"), prefix="replay/"))
    assert [due.message.topic for due in chosen] == ["replay/sensors/a", "replay/sensors/b/c", "replay/hall/lamp"]
    assert chosen.left_out == {"other topics": 1}


def test_the_fleets_own_topics_are_played_only_when_asked_for() -> None:
    recorded = [message(0, "fleetgp/home/agents/a/status"), message(1), message(2, "fleetgpx/a")]
    without = timeline(recorded, Cut())
    assert [due.message.topic for due in without] == ["sensors/a", "fleetgpx/a"]
    assert without.left_out == {"the fleet's own topics": 1}
    assert len(list(timeline(recorded, Cut(has_own_topics=True)))) == 3


@pytest.mark.parametrize("topic", ["", "a/+", "#", "$SYS/x", "nul\0", "x" * 65536])
def test_a_topic_that_no_client_may_publish_on_is_left_out_and_counted(topic: str) -> None:
    odd = timeline([message(0, topic), message(1)], Cut())
    assert [due.message.topic for due in odd] == ["sensors/a"]
    assert odd.left_out == {"topics that no client may publish on": 1}


@pytest.mark.parametrize(("how", "expected"), [("keep", [True, False]), ("plain", [False, False]), ("skip", [False])])
def test_retained_messages_are_retained_again_or_made_plain_or_left_out(how: str, expected: list[bool]) -> None:
    recorded = [message(0, is_retained=True), message(1)]
    dues = timeline(recorded, Cut(retained=how))  # type: ignore[arg-type]
    assert [due.message.is_retained for due in dues] == expected


def test_rebased_to_now_the_first_message_is_of_now_and_all_keep_their_spacing() -> None:
    recorded = [message(second) for second in (0, 0.5, 7)]
    dues = list(timeline(recorded, Cut(begin=Moment(400_000_000, is_offset=True), shift_ns="now")))
    assert times_s(dues) == pytest.approx([NOW / SECOND - START / SECOND, NOW / SECOND - START / SECOND + 6.5])
    shifted = list(timeline(recorded, Cut(shift_ns=-3600 * SECOND)))
    assert times_s(shifted) == [-3600, -3599.5, -3593]
    assert [due.message.payload for due in timeline(recorded, Cut())] == [m.payload for m in recorded]


def test_loops_go_on_where_the_next_message_would_have_come() -> None:
    looped = timeline(TEN, Cut(loops=3, shift_ns=0))
    dues = list(looped)
    assert offsets_s(dues) == list(range(30))
    assert times_s(dues) == list(range(30)), "times in payloads never go back"
    assert looped.loop == 3


def test_a_loop_of_a_span_takes_as_long_as_the_span() -> None:
    span = Cut(begin=Moment(START + 1 * SECOND), end=Moment(START + 5 * SECOND), loops=2)
    recorded = [message(1.5), message(2), message(6)]
    dues = list(timeline(recorded, span))
    assert offsets_s(dues) == [0, 0.5, 4, 4.5]
    assert times_s(dues) == [1.5, 2, 1.5, 2], "without a shift payloads stay as they are"


def test_an_endless_loop_of_nothing_ends_and_one_message_alone_comes_once_a_second() -> None:
    assert list(timeline([], Cut(loops=None))) == []
    endless = iter(timeline([message(0)], Cut(loops=None)))
    assert offsets_s(next(endless) for _ in range(4)) == [0, 1, 2, 3]


def test_gaps_are_told_as_they_are_met_and_once_for_all_loops() -> None:
    told: list[Gap] = []
    gap = Gap(START + SECOND, START + 5 * SECOND, "no connection to the broker")
    recorded = [message(0), gap, message(6)]
    looped = Timeline(lambda begin_ns: iter(recorded), Cut(loops=2), now_ns=lambda: NOW, on_gap=told.append)
    dues = iter(looped)
    next(dues)
    assert told == []
    next(dues)
    assert told == [gap]
    assert len(list(dues)) == 2
    assert looped.gaps == told == [gap]


def test_a_longer_pause_is_shortened_and_what_follows_is_of_now_too() -> None:
    recorded = [message(second) for second in (0, 1, 86_400, 86_401)]
    short = Cut(longest_pause_ns=5 * SECOND, shift_ns="now", loops=2)
    shortened = timeline(recorded, short)
    dues = list(shortened)
    assert offsets_s(dues) == pytest.approx([0, 1, 6, 7, 7 + 7 / 3, 8 + 7 / 3, 13 + 7 / 3, 14 + 7 / 3], abs=1e-6)
    base_s = NOW / SECOND - START / SECOND
    assert [at - base_s for at in times_s(dues)] == pytest.approx(offsets_s(dues), abs=0.002)
    assert shortened.shortened == 1, "of one loop"
    fixed = times_s(timeline(recorded, Cut(longest_pause_ns=5 * SECOND, shift_ns=3600 * SECOND, loops=2)))
    assert fixed[:4] == [3600, 3601, 90_000, 90_001], "a shift that was asked for by a span is that span"
    assert fixed == sorted(fixed)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (Moment(START + 6 * SECOND), Moment(START + 4 * SECOND)),
        (Moment(START + 6 * SECOND), Moment(4 * SECOND, is_offset=True)),
        (Moment(SECOND, is_offset=True), Moment(SECOND, is_offset=True)),
    ],
)
def test_a_span_that_ends_before_it_begins_is_refused(begin: Moment, end: Moment) -> None:
    with pytest.raises(ConfigError, match=r"--to.*not after --from"):
        timeline(TEN, Cut(begin=begin, end=end)).open()


def test_messages_of_the_span_are_played_though_others_stand_before_them() -> None:
    """A clock that jumped ahead and came back: the jump neither ends the replay nor is part of it."""
    recorded = [message(0), message(9000), message(1), message(0.5), message(2), message(3)]
    odd = timeline(recorded, Cut(end=Moment(3 * SECOND, is_offset=True)))
    dues = list(odd)
    assert times_s(dues) == [0, 1, 0.5, 2]
    assert offsets_s(dues) == [0, 1, 1, 2]
    assert odd.early == 1


def test_what_comes_long_after_the_end_is_not_read() -> None:
    read: list[float] = []

    def endless(_: int | None) -> Iterator[Recorded]:
        for second in count():
            read.append(second)
            yield message(float(second))

    assert len(list(Timeline(endless, Cut(end=Moment(5 * SECOND, is_offset=True)), now_ns=lambda: NOW))) == 5
    assert len(read) < 5 + PAST_END + 10


def test_what_is_read_begins_where_it_is_asked_for_unless_all_is_numbered() -> None:
    asked: list[int | None] = []

    def read(begin_ns: int | None) -> Iterator[Recorded]:
        asked.append(begin_ns)
        return iter(TEN)

    cut = Cut(begin=Moment(4 * SECOND, is_offset=True))
    assert len(list(Timeline(read, cut, now_ns=lambda: NOW))) == 6
    assert asked == [None, START + 4 * SECOND]
    asked.clear()
    numbers: list[int] = []

    def change(items: Iterator[tuple[int, Recorded]], first_ns: int) -> Iterator[Recorded]:
        assert first_ns == START
        for number, one in items:
            numbers.append(number)
            yield one

    assert len(list(Timeline(read, cut, now_ns=lambda: NOW, change=change))) == 6
    assert asked == [None, None]
    assert numbers == [4, 5, 6, 7, 8, 9], "their numbers in the whole recording"


def test_a_recording_that_holds_nothing_to_play_says_so_before_anything_is_sent() -> None:
    empty, other = timeline([], Cut()), timeline(TEN, Cut(filters=("nothing/#",)))
    assert (empty.open(), empty.is_empty) == (False, True)
    assert (other.open(), other.is_empty) == (False, False)
    assert other.left_out == {"other topics": 10}
    assert list(empty) == list(other) == []


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.integers(1, 4))
def test_offsets_are_those_of_the_recording_and_never_go_back(nanoseconds: list[int], loops: int) -> None:
    """In order they are exact; a message recorded out of order follows the one before it at once."""
    recorded = [Message("t", b"", START + ns) for ns in nanoseconds]
    dues = list(timeline(recorded, Cut(loops=loops)))
    offsets = [due.offset_ns for due in dues]
    assert offsets == sorted(offsets)
    assert len(offsets) == loops * len(nanoseconds)
    if nanoseconds == sorted(nanoseconds):
        assert offsets[: len(nanoseconds)] == [ns - nanoseconds[0] for ns in nanoseconds]
    for before, after in zip(offsets, offsets[len(nanoseconds) :], strict=False):
        assert after - before == offsets[len(nanoseconds)] - offsets[0] if loops > 1 else True
