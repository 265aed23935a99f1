"""What a long command shows: one live line on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import io

from broker_bridge.screen import LIVE_S, PLAIN_S, Screen, size, span
from fleetgp.runtime.clock import FakeClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_is_written_over_and_lines_that_stay_stand_above_it() -> None:
    clock, terminal = FakeClock(), Terminal()
    screen = Screen(clock, terminal)
    assert not screen.is_due
    clock.advance(LIVE_S)
    assert screen.is_due
    screen.show("one")
    assert not screen.is_due
    screen.say("a gap")
    screen.show("two" * 1000)
    shown = terminal.getvalue().split("\r\x1b[2K")
    assert shown[:3] == ["", "one", "a gap\n"]
    assert shown[3].startswith("twotwo")
    assert len(shown[3]) < 1000, "a line that wraps could not be written over"


def test_elsewhere_plain_lines_come_every_ten_seconds() -> None:
    clock, file = FakeClock(), io.StringIO()
    screen = Screen(clock, file)
    clock.advance(PLAIN_S - 0.1)
    assert not screen.is_due
    clock.advance(0.1)
    screen.show("one")
    screen.say("a gap")
    assert file.getvalue() == "one\na gap\n"


def test_a_screen_that_is_gone_stops_nothing() -> None:
    file = io.StringIO()
    screen = Screen(FakeClock(), file)
    file.close()
    screen.say("hello")
    assert screen.write("still here") == 10


def test_sizes_and_spans_read_as_people_say_them() -> None:
    assert [size(n) for n in (0, 640, 12_345, 4_500_000, 7.2e9)] == ["0 B", "640 B", "12.3 kB", "4.5 MB", "7.2 GB"]
    assert [span(s) for s in (0.04, 59.94, 245, 7380, 180_120)] == [
        "0.0 s",
        "59.9 s",
        "4:05 min",
        "2:03:00 h",
        "2 d 2:02 h",
    ]
