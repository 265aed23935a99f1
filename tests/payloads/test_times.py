"""Times of payloads: ISO text and counts of any unit, and what a live clock may claim."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import PeerError
from fleetgp.payloads import read
from fleetgp.payloads.content import ClockPolicy, epoch_ms, settle

MODEST = settings(max_examples=60, deadline=None, derandomize=True)

AT = datetime(2026, 3, 4, 9, 15, 30, 250_000, tzinfo=UTC)
AT_MS = 1_772_615_730_250
PLAUSIBLE = st.datetimes(datetime(2001, 9, 10), datetime(2285, 1, 1), timezones=st.just(UTC))


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-04T09:15:30.250Z",
        "2026-03-04T09:15:30.250+00:00",
        "2026-03-04T09:15:30.250",  # no zone: UTC
        "2026-03-04 09:15:30.250",
        "2026-03-04T10:15:30.250+01:00",
        "2026-03-04T14:45:30.250+0530",
        "2026-03-04T09:15:30.250118530Z",  # nanoseconds, as network servers of radio sensors write them
        "20260304T091530.250Z",
    ],
)
def test_iso_text_of_one_instant(text: str) -> None:
    assert epoch_ms(text) == AT_MS


def test_a_date_alone_is_its_midnight() -> None:
    assert epoch_ms("2026-03-04") == epoch_ms("20260304") == 1_772_582_400_000


@MODEST
@given(PLAUSIBLE)
def test_the_unit_of_a_count_is_told_by_its_size(moment: datetime) -> None:
    """Seconds, milli-, micro- and nanoseconds of any instant from 2001 to 2285, as number or as text, are that instant."""
    us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    expected = us / 1000
    for count in (us / 1e6, us / 1e3, us, us * 1000):
        for value in (count, int(count), str(count), str(int(count))):
            seconds_only = count == us / 1e6 and "." not in str(value)
            # whole seconds cut off a part of one; else rounding to whole ms, twice at most
            assert abs(epoch_ms(value) - expected) <= (1000 if seconds_only else 1.5)


@MODEST
@given(PLAUSIBLE, st.integers(-14 * 60, 14 * 60))
def test_iso_text_in_any_zone_is_the_instant(moment: datetime, offset_min: int) -> None:
    local = moment.astimezone(timezone(timedelta(minutes=offset_min)))
    assert abs(epoch_ms(local.isoformat()) - moment.timestamp() * 1000) <= 0.5 + 1e-3  # rounded to a whole ms


def test_digits_that_would_pass_for_a_date_are_a_count() -> None:
    """Epoch ms as text whose digits also spell a date and a time of 1701 or 1801: years from 2023 on are at stake."""
    assert epoch_ms("1701112341234") == 1_701_112_341_234
    assert epoch_ms("1801010112359") == 1_801_010_112_359


@pytest.mark.parametrize(
    "value",
    [
        "",
        "yesterday",
        "12:30",
        "2026-13-01",
        "2026-02-30T00:00:00",
        "nan",
        "inf",
        "-5",
        -5,
        1e300,
        10**400,
        True,
        None,
        [1],
        {"s": 1},
        float("nan"),
        float("inf"),
        "9" * 400,
        "2026-03-04T25:00:00",
        "0001-01-01T00:00:00\ud800",
    ],
)
def test_what_is_no_time_is_refused_as_time(value: object) -> None:
    with pytest.raises(PeerError) as caught:
        epoch_ms(value)
    assert caught.value.code == "time"
    assert len(str(caught.value)) < 100


def settled(payload: bytes, policy: ClockPolicy, received_ms: int = AT_MS) -> int:
    return settle(read(payload).at_ms, received_ms, policy)


def seconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp())


UNSET = b'{"time":"1970-01-01T00:00:07","t":3}'
FAR = b'{"time":4102444800,"t":3}'


@pytest.mark.parametrize("payload", [UNSET, FAR, b'{"time":"2019-12-31T23:59:59Z"}', b'{"time":0}'])
def test_a_live_clock_that_cannot_be_right_is_refused(payload: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        settled(payload, "live")
    assert caught.value.code == "implausible_time"


@pytest.mark.parametrize(("payload", "at_s"), [(UNSET, 7), (FAR, 4_102_444_800)])
def test_a_recordings_own_clock_decides_and_receive_time_never_asks(payload: bytes, at_s: int) -> None:
    assert settled(payload, "recording") == at_s * 1000
    assert settled(payload, "receive") == AT_MS


def test_a_live_clock_may_run_five_minutes_ahead_and_not_a_millisecond_more() -> None:
    ahead = AT_MS + 300_000
    assert settle(ahead, AT_MS, "live") == ahead
    with pytest.raises(PeerError):
        settle(ahead + 1, AT_MS, "live")


def test_a_live_clock_starts_with_2020() -> None:
    first = seconds("2020-01-01T00:00:00+00:00") * 1000
    assert settle(first, AT_MS, "live") == first
    with pytest.raises(PeerError):
        settle(first - 1, AT_MS, "live")


@pytest.mark.parametrize("policy", ["live", "recording", "receive"])
def test_without_a_time_of_its_own_a_reading_is_filed_when_it_came(policy: ClockPolicy) -> None:
    assert settled(b'{"t":3}', policy) == AT_MS
    assert settled(b"21.5", policy) == AT_MS
    assert settled(b'{"time":"04.03.2026 09:15","t":3}', policy) == AT_MS  # counted as rejected, see test_read
