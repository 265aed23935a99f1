"""Several readers of one pass: each gets all that is of its own device, in order, however little may wait."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.recording.shared import Pass

MODEST = settings(max_examples=150, deadline=None, derandomize=True)
ITEMS = st.lists(st.sampled_from("abcd"), max_size=60)


def source(devices: list[str]) -> Iterator[tuple[str, tuple[int, str]]]:
    for place, device in enumerate(devices):
        yield device, (place, device)


@MODEST
@given(ITEMS, st.integers(0, 8), st.lists(st.sampled_from("abcd"), max_size=200), st.sampled_from(["abcd", "ab", "d"]))
def test_each_reader_gets_its_own_whole_in_whatever_order_they_are_asked(
    devices: list[str], most: int, asked: list[str], joined: str
) -> None:
    shared = Pass(lambda _: source(devices), most)
    readers = {device: shared.join(device) for device in joined}
    got: dict[str, list[tuple[int, str]]] = {device: [] for device in joined}
    for device in [name for name in asked if name in joined]:
        got[device] += [item for item in [next(readers[device], None)] if item is not None]
    for device, reader in readers.items():
        got[device] += reader
    for device in joined:
        assert got[device] == [(place, name) for place, name in enumerate(devices) if name == device]


def test_devices_that_take_turns_are_read_in_one_pass_and_those_one_after_the_other_in_one_each() -> None:
    for devices, expected in ((list("abcd") * 500, [True]), (sorted("abcd" * 500), [True, False, False, False])):
        passes: list[bool] = []

        def counted(
            is_counted: bool, rows: list[str] = devices, made: list[bool] = passes
        ) -> Iterator[tuple[str, int]]:
            made.append(is_counted)
            yield from ((device, place) for place, device in enumerate(rows))

        shared: Pass[int] = Pass(counted, most_waiting=100)
        readers = [shared.join(device) for device in "abcd"]
        assert sorted(merge(*readers)) == list(range(2000))
        assert passes == expected


def test_a_pass_that_has_begun_is_closed_to_others_and_a_reader_that_leaves_lets_go() -> None:
    shared: Pass[tuple[int, str]] = Pass(lambda _: source(list("ab") * 50), most_waiting=30)
    assert shared.is_open_to("a")
    first, second = shared.join("a"), shared.join("b")
    assert not shared.is_open_to("a")
    assert next(first) == (0, "a")
    assert not shared.is_open_to("c")
    assert next(second) == (1, "b")
    second.close()  # type: ignore[attr-defined]
    assert len(list(first)) == 49
