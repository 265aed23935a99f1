"""Numbers replaced inside payloads, against what the house's own reader reads of them before and after."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from fleetgp import payloads
from simulator import fault_payload

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6).filter(
    lambda name: (
        name.strip() and name.lower() not in ("time", "timestamp", "ts", "at_ms", "last_seen", "seq", "sequence")
    )
)
NUMBERS = st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9).map(lambda value: round(value, 4))
DOCUMENTS = st.dictionaries(
    NAMES,
    st.recursive(
        NUMBERS | st.sampled_from(["on", None, "21.4", True, 'a "quoted" {word}, with: all']),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=5,
    ),
    min_size=1,
    max_size=4,
)


@given(document=DOCUMENTS, indent=st.sampled_from([None, 2]), is_ascii=st.booleans())
def test_one_field_is_another_number_and_all_others_are_as_they_were(
    document: dict[str, object], indent: int | None, is_ascii: bool
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii).encode()
    before = payloads.read(text).values
    for name, value in before.items():
        place = fault_payload.find(text, name)
        if isinstance(place, str):
            assert place == "no_number"  # a word, a truth value or null
            continue
        assert place.value == value
        new = fault_payload.replaced(text, place, place.value + 2.5)
        assert payloads.read(new).values == {**before, name: json.loads(f"{place.value + 2.5:.15g}")}
        assert new.startswith(text[: place.begin])
        assert new.endswith(text[place.end :])
        assert payloads.read(fault_payload.replaced(text, place, math.nan)).values == {**before, name: None}
        gone = fault_payload.removed(text, place)
        assert gone is not None
        rest = payloads.read(gone).values
        assert rest.get(name) is None
        assert {key: one for key, one in rest.items() if key != name} == {k: v for k, v in before.items() if k != name}


def test_whole_numbers_stay_whole_and_quotes_stay() -> None:
    text = b'{"count": 5, "level": "2.50"}'
    count, level = fault_payload.find(text, "count"), fault_payload.find(text, "level")
    assert isinstance(count, fault_payload.Place)
    assert isinstance(level, fault_payload.Place)
    assert fault_payload.replaced(text, count, 8.0) == b'{"count": 8, "level": "2.50"}'
    assert fault_payload.replaced(text, level, 3.0) == b'{"count": 5, "level": "3"}'


@given(st.binary(max_size=40))
def test_no_bytes_are_too_strange(payload: bytes) -> None:
    place = fault_payload.find(payload, "")
    assert isinstance(place, (str, fault_payload.Place))
