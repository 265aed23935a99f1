"""The sender's own time against the reader of payloads, which decodes all of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_bridge.own_time import MAX_BYTES, own_time_ns
from fleetgp.payloads import json as reader

SOME_NS = 1_772_617_890_123_456_789
MOMENTS = st.datetimes(datetime(2001, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))


@pytest.mark.parametrize(
    ("told", "expected_ns"),
    [
        (SOME_NS, SOME_NS),
        (SOME_NS // 1000, SOME_NS // 1000 * 1000),
        (SOME_NS // 1_000_000, SOME_NS // 1_000_000 * 1_000_000),
        (SOME_NS // 1_000_000_000, SOME_NS // 1_000_000_000 * 1_000_000_000),
        ("2026-03-04T09:51:30.123456Z", SOME_NS // 1000 * 1000),
        ("2026-03-04T10:51:30.123456+01:00", SOME_NS // 1000 * 1000),
        ("2026-03-04T09:51:30.123456", SOME_NS // 1000 * 1000),
        (str(SOME_NS // 1_000_000), SOME_NS // 1_000_000 * 1_000_000),
    ],
)
def test_every_unit_and_form_of_a_time_is_read_as_fine_as_it_is(told: object, expected_ns: int) -> None:
    assert own_time_ns(json.dumps({"temperature": 3.5, "time": told}).encode()) == expected_ns


@given(MOMENTS, st.sampled_from(["time", "timestamp", "ts", "at_ms", "last_seen"]), st.booleans())
def test_it_is_the_time_that_the_bridge_files_a_reading_under(moment: datetime, key: str, is_text: bool) -> None:
    told = moment.isoformat() if is_text else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    payload = json.dumps({"a": {"time": 5}, key: told, "b": [1, 2]}).encode()
    at_ms = reader.read(payload).at_ms
    assert at_ms is not None
    assert abs(own_time_ns(payload) / 1e6 - at_ms) <= 1.0


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"21.5", b"[1]", b"{", b'{"time": "noon"}', b'{"time": null}', b'{"time": true}', b'{"time": 12}', b'{"time": -1}',
        b'{"time": [1]}', b'{"time": 1e30}', b'{"time": "0001-01-01"}', b'{"time": "99999999999999999999999"}',
        b'{"a": {"time": 1772617890123}}', b"\xff\xfe", b'{"time": "\xff"}', b'{"a":' * 5000,
        b'{"time": 1772617890123, "a": "' + b"x" * MAX_BYTES + b'"}',
    ],
)  # fmt: skip
def test_no_payload_is_refused_and_none_without_a_time_gets_one(payload: bytes) -> None:
    assert own_time_ns(payload) == 0
