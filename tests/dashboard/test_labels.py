"""Numbers and words on the screen."""

from __future__ import annotations

import pytest

from dashboard import labels


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "0.2 s"), (59.4, "59 s"), (60, "1 min"), (200, "3 min 20 s"), (7200, "2 h"), (7290, "2 h 1 min"),
     (86400, "1 day"), (100_000, "1 day 3 h"), (200_000, "2 days 7 h")],
)  # fmt: skip
def test_a_duration_in_at_most_two_units(seconds: float, text: str):
    assert labels.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB")]
)
def test_bytes(size: int, text: str):
    assert labels.data_size(size) == text


def test_age_of_what_is_unknown_or_ahead_of_our_clock():
    assert labels.age(None) == "–"
    assert labels.age(-3.0) == "0 s ago"


def test_blame_in_words():
    assert labels.blame({"b": 0.22, "a": 0.72, "c": 0.04}) == "mainly a (72 %), also b (22 %)"
    assert labels.blame({"a": 1.0}) == "a (100 %)"
    assert labels.blame({}) == "all channels together"


def test_skill_in_words():
    assert labels.saved(0.31) == "31 % smaller than by repeating the last reading"
    assert labels.saved(-0.07) == "7 % larger than by repeating the last reading"
    assert labels.saved(0.001) == "as good as repeating the last reading"
    assert labels.saved(None) == "not known yet"


def test_long_lists_are_cut():
    assert labels.names(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert labels.names([]) == ""
