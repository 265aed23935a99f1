from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.runtime.bounded import Bounded


def put_all(queue: Bounded[int], items: list[int], *, is_droppable: bool) -> list[bool]:
    return [queue.put(item, is_droppable=is_droppable, timeout_s=0.0) for item in items]


def test_items_come_out_in_order_and_at_most_as_many_as_asked() -> None:
    queue: Bounded[int] = Bounded(10)
    put_all(queue, [1, 2, 3, 4], is_droppable=False)
    assert queue.take(3, 0.0) == [1, 2, 3]
    assert queue.take(3, 0.0) == [4]
    assert queue.take(3, 0.0) == []


def test_a_full_queue_drops_the_oldest_droppable_and_counts_it() -> None:
    queue: Bounded[int] = Bounded(3, name="inbox")
    queue.put(1, is_droppable=False, timeout_s=0.0)
    put_all(queue, [2, 3, 4, 5], is_droppable=True)
    assert queue.take(10, 0.0) == [1, 4, 5]
    assert queue.counters() == {"inbox_dropped": 2, "inbox_refused": 0}


def test_a_droppable_item_is_itself_dropped_where_no_other_can_go() -> None:
    queue: Bounded[int] = Bounded(2)
    put_all(queue, [1, 2], is_droppable=False)
    assert queue.put(3, is_droppable=True, timeout_s=60.0) is False
    assert queue.take(10, 0.0) == [1, 2]
    assert queue.counters()["inbox_dropped"] == 1


def test_other_items_are_refused_after_the_wait_and_counted() -> None:
    queue: Bounded[int] = Bounded(1, name="work")
    queue.put(1, is_droppable=True, timeout_s=0.0)
    began_s = time.monotonic()
    assert queue.put(2, is_droppable=False, timeout_s=0.05) is False
    assert 0.04 < time.monotonic() - began_s < 2.0
    assert queue.counters() == {"work_dropped": 0, "work_refused": 1}


def test_a_waiting_put_gets_in_as_soon_as_there_is_room() -> None:
    queue: Bounded[int] = Bounded(1)
    queue.put(1, is_droppable=False, timeout_s=0.0)
    results: list[bool] = []
    putter = threading.Thread(target=lambda: results.append(queue.put(2, is_droppable=False, timeout_s=10.0)))
    putter.start()
    assert queue.take(1, 0.0) == [1]
    assert queue.take(1, 10.0) == [2]
    putter.join(10.0)
    assert results == [True]


def test_take_waits_for_the_first_item_only() -> None:
    queue: Bounded[int] = Bounded(5)
    putter = threading.Timer(0.05, lambda: queue.put(7, is_droppable=False, timeout_s=0.0))
    putter.start()
    began_s = time.monotonic()
    assert queue.take(5, 10.0) == [7]
    assert time.monotonic() - began_s < 5.0


def test_no_room_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Bounded(0)


@given(
    capacity=st.integers(1, 5),
    steps=st.lists(st.one_of(st.sampled_from(["drop", "keep"]), st.integers(1, 4)), max_size=60),
)
def test_it_behaves_as_a_plain_list_would(capacity: int, steps: list[str | int]) -> None:
    """Against the simplest possible model: a list of (item, droppable), scanned by hand."""
    queue: Bounded[int] = Bounded(capacity)
    model: list[tuple[int, bool]] = []
    dropped = refused = 0
    for number, step in enumerate(steps):
        if isinstance(step, int):
            expected, model = model[:step], model[step:]
            assert queue.take(step, 0.0) == [item for item, _ in expected]
            continue
        is_droppable = step == "drop"
        is_in = len(model) < capacity
        if not is_in and is_droppable:
            dropped += 1
            oldest = next((entry for entry in model if entry[1]), None)
            if oldest:
                model.remove(oldest)
                is_in = True
        elif not is_in:
            refused += 1
        if is_in:
            model.append((number, is_droppable))
        assert queue.put(number, is_droppable=is_droppable, timeout_s=0.0) is is_in
    assert queue.depth == len(model)
    assert queue.counters() == {"inbox_dropped": dropped, "inbox_refused": refused}
