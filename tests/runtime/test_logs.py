"""Log lines: one line each whatever is in them, readable, bounded, and never in a program's way."""

from __future__ import annotations

import io
import json
import re

import pytest

from fleetgp.runtime.clock import FakeClock
from fleetgp.runtime.logs import MAX_ONCE_KEYS, ONCE_PERIOD_S, Log, make_log

AT_MS = 1_767_225_600_123


def text_log(level: str = "debug", clock: FakeClock | None = None) -> tuple[Log, io.StringIO]:
    stream = io.StringIO()
    return make_log("agent", "text", level, clock=clock or FakeClock(AT_MS), stream=stream), stream


def test_a_line_for_people() -> None:
    log, stream = text_log()
    log.info("round_closed", round=12, missing=["pump-3", "pump-4"], seconds=0.8123456789, is_late=False, best=None)
    line = stream.getvalue()
    assert re.fullmatch(r"\d\d:\d\d:00 info {4}agent {8}round_closed  .*\n", line)
    assert line.endswith("  round=12 missing=pump-3,pump-4 seconds=0.812346 is_late=no best=none\n")


def test_a_line_for_machines() -> None:
    stream = io.StringIO()
    log = make_log("agent", "json", "info", clock=FakeClock(AT_MS), stream=stream)
    log.warning("odd", event="shadow", level=3, ratio=0.5, names=("a", "b"), path=ValueError("x"))
    assert json.loads(stream.getvalue()) == {
        "at": "2026-01-01T00:00:00.123Z",
        "level": "warning",
        "program": "agent",
        "event": "odd",
        "fields": {"event": "shadow", "level": 3, "ratio": 0.5, "names": ["a", "b"], "path": "x"},
    }


@pytest.mark.parametrize(
    ("level", "written"),
    [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)],
)
def test_only_what_is_grave_enough_is_written(level: str, written: int) -> None:
    log, stream = text_log(level)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert stream.getvalue().count("\n") == written


@pytest.mark.parametrize("form", ["text", "json"])
def test_strangers_cannot_write_lines_of_their_own(form: str) -> None:
    """Newlines, escape codes and quotes from a payload stay inside their value."""
    stream = io.StringIO()
    log = make_log("agent", form, "info", clock=FakeClock(), stream=stream)
    log.info("rejected\nfake", topic='a"b\n12:00:00 error\x1b[2J\u2028', empty="", blank="a b", sign="a=b")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    if form == "text":
        assert 'empty="" blank="a b" sign="a=b"' in stream.getvalue()


def test_secrets_and_endless_values_are_not_shown() -> None:
    log, stream = text_log()
    log.info(
        "login", password="hunter2", mqtt_password="hunter3", api_token="hunter4", password_file="", long="x" * 10_000
    )
    assert "hunter" not in stream.getvalue()
    assert "password=***" in stream.getvalue()
    assert len(stream.getvalue()) < 1000


def test_once_is_once_for_each_key() -> None:
    log, stream = text_log()
    for _ in range(3):
        log.once("a", "info", "first")
        log.once("b", "warning", "second")
    assert stream.getvalue().count("first") == stream.getvalue().count("second") == 1


def test_a_flood_of_keys_is_bounded_in_lines_and_memory_and_passes() -> None:
    clock = FakeClock(AT_MS)
    log, stream = text_log(clock=clock)
    for number in range(3 * MAX_ONCE_KEYS):
        log.once(f"topic {number}", "warning", "rejected")
    assert stream.getvalue().count("  rejected\n") == MAX_ONCE_KEYS
    assert stream.getvalue().count("too many different complaints") == 1
    assert log.suppressed == 2 * MAX_ONCE_KEYS
    clock.advance(ONCE_PERIOD_S)
    log.once("something new", "warning", "heard again")
    assert "heard again" in stream.getvalue()


class Broken(io.StringIO):
    """A stream whose disk is full."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_stream_that_fails_does_not_stop_the_program() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (Broken(), closed):
        make_log("agent", clock=FakeClock(), stream=stream).error("something")


def test_values_that_json_has_no_word_for() -> None:
    stream = io.StringIO()
    log = make_log("agent", "json", "info", clock=FakeClock(), stream=stream)
    log.info("odd", nan=float("nan"), table={(1, 2): "x"}, lone="\ud800", big=2**70)
    seen = json.loads(stream.getvalue())
    assert seen["event"] == "odd"
    assert set(seen["fields"]) == {"nan", "table", "lone", "big"}


def test_words_that_are_no_form_or_level() -> None:
    with pytest.raises(ValueError, match="xml"):
        make_log("agent", "xml")
    with pytest.raises(ValueError, match="loud"):
        make_log("agent", "text", "loud")


def test_stderr_is_where_lines_go(capsys: pytest.CaptureFixture[str]) -> None:
    make_log("agent").info("hello")
    captured = capsys.readouterr()
    assert "hello" in captured.err
    assert captured.out == ""
