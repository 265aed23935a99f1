"""The player on a simulated clock and a fake way: when each message goes, what becomes of an outage, a stall and a stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_bridge.replay import AWAY_S, CONFIRM_S, Player
from broker_bridge.timeline import Due
from fleetgp.errors import ServiceError
from fleetgp.runtime.clock import FakeClock
from fleetgp.runtime.link import Outgoing


@dataclass
class FakeWay:
    """Takes messages while it is open, up to ``room`` unconfirmed ones; confirms them while time passes in it."""

    clock: FakeClock
    is_open: bool = True
    room: int = 1000
    confirms: bool = True
    cost_s: float = 0.0
    arrived: list[tuple[float, Outgoing]] = field(default_factory=list)
    pending: list[Outgoing] = field(default_factory=list)
    returned: list[Outgoing] = field(default_factory=list)
    poison: bytes | None = None

    @property
    def unconfirmed(self) -> int:
        return len(self.pending) + len(self.returned)

    def hand_over(self, messages: list[Outgoing], *, is_urgent: bool = False) -> int:
        if not self.is_open or self.returned:
            return 0
        taken = messages[: self.room - len(self.pending)]
        for count, message in enumerate(taken, 1):
            self.clock.advance(self.cost_s)
            self.pending.append(message)
            if message.payload == self.poison:
                self.break_off()
                return count
        return len(taken)

    def take_back(self) -> list[Outgoing]:
        back, self.returned = self.returned, []
        return back

    def wait_confirmed(self, most: int, timeout_s: float) -> bool:
        if self.confirms and self.is_open:
            self.settle()
        else:
            self.clock.advance(timeout_s)
        return self.is_open and self.unconfirmed <= most

    def settle(self) -> None:
        self.arrived += [(self.clock.monotonic_s(), message) for message in self.pending]
        self.pending = []

    def break_off(self) -> None:
        self.returned += self.pending
        self.pending = []


@dataclass
class Stage:
    """A player on a fake clock; ``events``: what happens at a moment, seconds after the start."""

    way: FakeWay
    clock: FakeClock
    events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    sent_s: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    is_stopping: bool = False

    def wait(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        while self.events and self.events[0][0] <= self.clock.monotonic_s():
            self.events.pop(0)[1]()
        return self.is_stopping

    def stop(self) -> None:
        self.is_stopping = True

    def player(self, speed: float | None = 1.0) -> Player:
        note = lambda _: self.sent_s.append(self.clock.monotonic_s())  # noqa: E731
        return Player(self.way, self.clock, self.wait, speed=speed, say=self.said.append, watch=note)


@pytest.fixture
def stage() -> Stage:
    clock = FakeClock()
    return Stage(FakeWay(clock), clock)


def dues(offsets_s: Iterable[float], qos: int = 1) -> list[Due]:
    return [Due(round(s * 1e9), Outgoing("sensors/a", b"%d" % n, qos), round(s * 1e9)) for n, s in enumerate(offsets_s)]


def payloads(way: FakeWay) -> list[int]:
    return [int(message.payload) for _, message in way.arrived]


@given(
    st.lists(st.floats(0, 300), min_size=1, max_size=50).map(sorted), st.sampled_from([0.25, 1.0, 7.0, 60.0, 1000.0])
)
@settings(deadline=None)
def test_every_message_goes_at_its_offset_by_the_speed(offsets_s: list[float], speed: float) -> None:
    """To a clock that takes no time for anything but waiting, so nothing is late."""
    clock = FakeClock()
    stage = Stage(FakeWay(clock, room=10**6), clock)
    player = stage.player(speed)
    player.play(dues(offsets_s))
    assert stage.sent_s == pytest.approx([offset / speed for offset in offsets_s], abs=1e-6)
    assert player.lateness.max_ms < 1e-3
    assert player.confirm() == 0
    assert payloads(stage.way) == list(range(len(offsets_s)))


def test_delays_do_not_add_up_and_late_messages_go_at_once(stage: Stage) -> None:
    """Each message costs 30 ms; every tenth comes with nine others: these are late, the next ten are not."""
    stage.way.cost_s = 0.03
    player = stage.player()
    player.play(dues([float(n // 10) for n in range(50)]))
    for n, at_s in enumerate(stage.sent_s):
        assert at_s == pytest.approx(n // 10 + 0.03 * (n % 10 + 1), abs=1e-6)
    assert player.lateness.max_ms == pytest.approx(270, abs=0.01)
    assert player.lateness.percentile(0.5) == pytest.approx(120, rel=0.03)


def test_the_clock_stands_still_while_the_broker_is_away_and_nothing_is_lost(stage: Stage) -> None:
    """Two messages were on their way when it went: they go first when it is back, and all keep their spacing."""
    stage.way.confirms = False

    def go() -> None:
        stage.way.is_open = False
        stage.way.break_off()

    def come() -> None:
        stage.way.is_open = stage.way.confirms = True

    stage.events = [(1.5, go), (12.0, come)]
    player = stage.player()
    player.play(dues([0, 1, 2, 3, 4]))
    assert player.confirm() == 0
    assert payloads(stage.way) == [0, 1, 2, 3, 4]
    assert stage.sent_s == pytest.approx([0, 1, 12, 13, 14], abs=0.21)
    assert stage.sent_s[4] - stage.sent_s[2] == pytest.approx(2, abs=1e-6)
    assert player.resent == 2
    assert player.sent == 5
    assert player.away_s == pytest.approx(10, abs=0.21)
    assert player.lateness.max_ms < 1e-3
    assert any("the broker is away" in words for words in stage.said)


def test_a_broker_that_stays_away_ends_the_replay_in_plain_words(stage: Stage) -> None:
    stage.way.is_open = False
    player = stage.player()
    with pytest.raises(ServiceError, match="away for 60 s"):
        player.play(dues([0, 1]))
    assert AWAY_S <= stage.clock.monotonic_s() < AWAY_S + 1
    assert player.confirm() == 1, "the message that was due"
    assert stage.clock.monotonic_s() < AWAY_S + CONFIRM_S + 1


def test_a_broker_that_takes_nothing_ends_the_replay(stage: Stage) -> None:
    stage.way.room, stage.way.confirms = 3, False
    player = stage.player(None)
    with pytest.raises(ServiceError, match="taken nothing for 60 s"):
        player.play(dues([0.0] * 10))
    assert player.sent == 3
    assert player.confirm() == 10


def test_at_full_speed_no_more_is_on_its_way_than_there_is_room_for(stage: Stage) -> None:
    stage.way.room = 40
    most: list[int] = []
    player = stage.player(None)
    taken = stage.way.hand_over

    def watched(messages: list[Outgoing], *, is_urgent: bool = False) -> int:
        count = taken(messages, is_urgent=is_urgent)
        most.append(len(stage.way.pending))
        return count

    stage.way.hand_over = watched  # type: ignore[method-assign]
    player.play(dues([100.0 * n for n in range(1000)]))
    assert player.confirm() == 0
    assert payloads(stage.way) == list(range(1000))
    assert max(most) == 40
    assert player.lateness.count == 0, "at full speed nothing has a moment to be late for"
    assert stage.clock.monotonic_s() < 1


def test_a_stop_is_heeded_within_a_step_and_what_was_due_still_arrives(stage: Stage) -> None:
    stage.events = [(2.5, stage.stop)]
    player = stage.player()
    player.play(dues(range(100)))
    assert player.is_stopped
    assert player.confirm() == 0
    assert payloads(stage.way) == [0, 1, 2]
    assert stage.clock.monotonic_s() == pytest.approx(2.5, abs=0.11)


def test_a_topic_at_which_the_broker_always_hangs_up_is_left_out_and_told(stage: Stage) -> None:
    """All others arrive, in order; no broker is asked three times for every message."""
    stage.way.poison = b"3"
    player = stage.player(None)
    odd = Due(0, Outgoing("odd topic", b"3", 1), 0)
    plain = dues([0.0] * 250)
    player.play([*plain[:3], odd, *plain[4:120], odd, *plain[120:]])
    assert player.confirm() == 0
    assert payloads(stage.way) == [n for n in range(250) if n != 3]
    assert (player.refused, player.sent) == (2, 249)
    assert [words for words in stage.said if "'odd topic'" in words and "left out" in words] == stage.said
    assert len(stage.said) == 1


def test_messages_of_quality_0_are_played_as_well(stage: Stage) -> None:
    player = stage.player(60.0)
    player.play(dues([0, 30, 60], qos=0))
    assert player.confirm() == 0
    assert [message.qos for _, message in stage.way.arrived] == [0, 0, 0]
    assert player.bytes == 3


def test_the_clock_begins_with_the_first_message_however_long_it_was_looked_for(stage: Stage) -> None:
    def slow() -> Iterable[Due]:
        stage.clock.advance(300.0)
        yield from dues([0, 1, 2])

    player = stage.player()
    player.play(slow())
    assert stage.sent_s == pytest.approx([300, 301, 302], abs=1e-5)
    assert player.lateness.max_ms < 1e-2


def test_a_long_wait_is_told_of_while_it_lasts(stage: Stage) -> None:
    told: list[float] = []
    player = Player(stage.way, stage.clock, stage.wait, pause=lambda due, left_s: told.append(left_s))
    stage.events = [(100.0, stage.stop)]
    player.play(dues([0, 0.5, 86_400]))
    assert told[0] == pytest.approx(86_400 - 0.5, abs=0.01)
    assert told == sorted(told, reverse=True)
    assert len(told) == pytest.approx(995, abs=5), "ten times a second, so that a screen can show it"
    assert player.first_ns is not None
    assert (player.first_ns, player.last_ns) == (0, 500_000_000), "what was waited for was not played"
