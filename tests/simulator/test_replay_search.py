"""The search for the first message to play: it can be stopped, and says how far it is."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from itertools import count, islice

from broker_bridge.screen import PLAIN_S, Screen
from fleetgp.recording.message import Message, Recorded
from fleetgp.runtime.clock import FakeClock
from simulator.run_replay import LOOK, Search


def endless(begin_ns: int | None) -> Iterator[Recorded]:
    return (Message("t", b"", n) for n in count(begin_ns or 0))


def test_a_stop_ends_a_search_that_would_not_end() -> None:
    stop, clock = threading.Event(), FakeClock()
    said = io.StringIO()
    messages = Search(endless, stop, Screen(clock, said)).read(5)
    assert [one.received_ns for one in islice(messages, 3) if isinstance(one, Message)] == [5, 6, 7]
    clock.advance(PLAIN_S + 1)
    assert len(list(islice(messages, LOOK))) == LOOK
    assert said.getvalue() == f"{LOOK:,} messages looked through\n"
    stop.set()
    assert list(messages) == []


def test_once_there_is_something_to_play_it_is_silent() -> None:
    clock, said = FakeClock(), io.StringIO()
    search = Search(endless, threading.Event(), Screen(clock, said))
    search.is_over = True
    messages = search.read(None)
    clock.advance(PLAIN_S + 1)
    assert len(list(islice(messages, 2 * LOOK))) == 2 * LOOK
    assert said.getvalue() == ""
