"""What can be asked of a replay, and what is refused in plain words."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

import pytest

from broker_bridge.cut import Cut, Moment
from fleetgp.errors import ConfigError
from simulator.replay_words import cut_of, moment_of, shift_of, speed_of

HOUR_NS = 3600 * 10**9


def asked(**words: object) -> Namespace:
    nothing = {"topic": [], "begin": None, "end": None, "prefix": "", "rebase": None, "loop": None, "max_pause": None}
    return Namespace(**{**nothing, "own_topics": False, "retained": "keep", **words})


def test_speeds() -> None:
    assert [speed_of(text) for text in ("1", "60", "0.5", "max")] == [1.0, 60.0, 0.5, None]


def test_moments_are_times_of_any_zone_or_spans_after_the_first_message() -> None:
    at_ns = round(datetime(2026, 3, 4, 9, tzinfo=UTC).timestamp()) * 10**9
    assert moment_of("2026-03-04T09:00", "--from") == Moment(at_ns)
    assert moment_of("2026-03-04T10:00:00.000250+01:00", "--from") == Moment(at_ns + 250_000)
    assert moment_of("+10min", "--to") == Moment(600 * 10**9, is_offset=True)
    assert moment_of("+500ms", "--to") == Moment(500_000_000, is_offset=True)


def test_shifts() -> None:
    assert [shift_of(text) for text in ("now", "+1h", "-2d")] == ["now", HOUR_NS, -48 * HOUR_NS]


def test_loops_are_once_or_so_often_or_for_ever() -> None:
    assert [cut_of(asked(loop=n)).loops for n in (None, 1, 5, 0)] == [1, 1, 5, None]


def test_a_prefix_is_a_level_of_its_own() -> None:
    assert cut_of(asked(prefix="replay", topic=["a/#"])) == Cut(filters=("a/#",), prefix="replay/")
    assert cut_of(asked(prefix="x/y/")).prefix == "x/y/"


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ({"prefix": "a/#"}, "--prefix"),
        ({"prefix": "a b"}, "--prefix"),
        ({"prefix": "$SYS"}, "--prefix"),
        ({"topic": ["a/#/b"]}, "--topic"),
        ({"begin": "noon"}, "--from"),
        ({"end": "+3 moons"}, "--to"),
        ({"rebase": "1h"}, "--rebase"),
        ({"rebase": "+x"}, "--rebase"),
        ({"loop": -1}, "--loop"),
        ({"begin": "1969-12-31"}, "--from"),
        ({"end": "+40000d"}, "--to"),
        ({"rebase": "-99999999999999999999d"}, "--rebase"),
        ({"max_pause": "0s"}, "--max-pause"),
    ],
)
def test_what_cannot_be_is_refused_by_its_flag(words: dict[str, object], flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        cut_of(asked(**words))


@pytest.mark.parametrize("text", ["0", "-1", "fast", "nan", "inf", ""])
def test_a_speed_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--speed.*max"):
        speed_of(text)
