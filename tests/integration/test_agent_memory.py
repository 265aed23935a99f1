"""An agent's memory: whatever moment it is cut off at, it comes back to the state of one that never was."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent import agent
from edge_agent import memory as memories
from edge_agent.frames import Sample
from edge_agent.memory import RECENT, REPLAY_S, SNAPSHOT_VERSION, Entry, Memory, Recent, mark
from edge_agent.state import AgentConfig, Event, Readings, RoundOpened, State
from fleetgp.errors import StorageError
from fleetgp.runtime import snapshot
from fleetgp.runtime.journal import Journal
from fleetgp.runtime.logs import Log
from fleetgp.schema import Channel, Schema
from fleetgp.wire.freeze import freeze

SCHEMA = Schema(channels=(Channel(name="flow"), Channel(name="dust")))
QUIET = Log("test", stream=io.StringIO())


def fresh(**changes: object) -> State:
    return agent.init(msgspec.structs.replace(AgentConfig(agent_id="a", schema=SCHEMA, is_live=False), **changes), 1000)


def stream(count: int, seed: int = 1) -> list[Event]:
    """Readings one by one and in batches, with rounds between them."""
    rng = np.random.default_rng(seed)
    events: list[Event] = []
    at_ms = 1_700_000_000_000
    for number in range(count):
        samples = []
        for _ in range(1 + number % 3):
            at_ms += 1000
            samples.append(Sample(at_ms, at_ms + 5, (0, 1), tuple(map(float, rng.normal(5.0, 1.0, 2)))))
        events.append(RoundOpened(at_ms, number) if number % 7 == 6 else Readings(at_ms, tuple(samples)))
    return events


def after(events: list[Event], state: State | None = None) -> State:
    state = state or fresh()
    for event in events:
        state, _ = agent.step(state, event)
    return state


def work(memory: Memory, events: list[Event]) -> None:
    """What the body does with every event."""
    for event in events:
        memory.keep(event)
        memory.state, _ = agent.step(memory.state, event)


def same(ours: State, theirs: State) -> bool:
    """To the last bit, NaN included."""
    return freeze(ours) == freeze(theirs)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6))
def test_stop_and_go_equals_never_stopping(
    tmp_path_factory: pytest.TempPathFactory, legs: list[tuple[int, bool]]
) -> None:
    """Any number of kills, each after some events and with or without a snapshot just before, change not a bit."""
    folder = tmp_path_factory.mktemp("agent")
    events = stream(sum(count for count, _ in legs))
    done = 0
    for count, has_saved in legs:
        memory = Memory(folder, fresh(), QUIET)
        assert same(memory.state, after(events[:done]))
        work(memory, events[done : done + count])
        done += count
        if has_saved:
            memory.save()
        # no close, no last save: as after a kill
    memory = Memory(folder, fresh(), QUIET)
    assert memory.events == done
    assert same(memory.state, after(events))
    assert not memory.failures


def test_a_kill_between_snapshot_and_journal_takes_no_event_twice(tmp_path: Path) -> None:
    """The journal still holds what the snapshot holds already: the numbers tell."""
    events = stream(12)
    memory = Memory(tmp_path, fresh(), QUIET)
    work(memory, events)
    journal = (tmp_path / "journal.bin").read_bytes()
    memory.save()
    (tmp_path / "journal.bin").write_bytes(journal)
    again = Memory(tmp_path, fresh(), QUIET)
    assert again.events == len(events)
    assert same(again.state, after(events))


@pytest.mark.parametrize("has_saved", [False, True])
def test_what_was_taken_is_known_after_a_kill(tmp_path: Path, has_saved: bool) -> None:
    """Samples that the broker brings again are not taken again; new ones among them are, each once, in their order."""
    events = stream(20)
    memory = Memory(tmp_path, fresh(), QUIET)
    work(memory, events)
    if has_saved:
        memory.save()
    taken = [s for event in events if isinstance(event, Readings) for s in event.samples]
    new = [msgspec.structs.replace(s, at_ms=s.at_ms + 10**6) for s in taken[:3]]
    brought_again = [msgspec.structs.replace(s, received_ms=s.received_ms + 4000) for s in taken]
    again = Memory(tmp_path, fresh(), QUIET)
    assert again.unknown([*brought_again[:5], *new, *new, *brought_again[5:]]) == new
    # the same time, but another value or another input, is another reading
    other = msgspec.structs.replace(taken[0], values=(1.0, 2.0))
    assert again.unknown([other]) == [other]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 40), max_size=200))
def test_recent_marks_are_the_last_ones(times: list[int]) -> None:
    """As many as are kept are known, whatever came more than once; older ones are forgotten."""
    filler = [(10**6 + number, 0) for number in range(RECENT - 100)]
    marks = [*[(time, 0) for time in times], *filler]
    recent = Recent()
    for one in marks:
        recent.add(one)
    kept = set(marks[-RECENT:])
    assert [(time, 0) in recent for time in range(41)] == [(time, 0) in kept for time in range(41)]
    assert len(recent.marks) == min(RECENT, len(marks))


def test_marks_tell_missing_from_present() -> None:
    """NaN equals NaN here: a reading that says "missing" is known again."""
    nan = Sample(1, 2, (0, 1), (float("nan"), 1.0))
    assert mark(nan) == mark(Sample(1, 9, (0, 1), (float("nan"), 1.0)))
    assert mark(nan) != mark(Sample(1, 2, (0, 1), (0.0, 1.0)))


def test_an_event_that_the_brain_fails_on_does_not_end_every_start(tmp_path: Path) -> None:
    """It is left out, counted and said; all the others are replayed."""
    events = stream(10)
    poison = Readings(1, (Sample(1_700_000_100_000, 1, (99,), (1.0,)),))
    with pytest.raises(IndexError):
        agent.step(after(events), poison)
    memory = Memory(tmp_path, fresh(), QUIET)
    work(memory, events[:5])
    memory.keep(poison)  # and then the process dies of it
    said = io.StringIO()
    again = Memory(tmp_path, fresh(), Log("test", stream=said))
    assert again.failures == {"event_failed": 1}
    assert "left out" in said.getvalue()
    work(again, events[5:])
    assert same(again.state, after(events))
    assert same(Memory(tmp_path, fresh(), QUIET).state, after(events))


def spoil_snapshot(folder: Path) -> None:
    path = folder / "snapshot.bin"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def write_strange_snapshot(folder: Path) -> None:
    """Sound to the checksum, but of another program."""
    snapshot.save(folder / "snapshot.bin", [b"\x04\x00\x00\x00\x93\x01\x02\x03"], version=SNAPSHOT_VERSION)


def lose_snapshot(folder: Path) -> None:
    (folder / "snapshot.bin").unlink()


@pytest.mark.parametrize("harm", [spoil_snapshot, write_strange_snapshot, lose_snapshot])
def test_a_memory_that_cannot_be_read_is_put_aside_and_said(tmp_path: Path, harm: object) -> None:
    """The agent starts afresh, keeps every byte of what it could not read, and the next start is sound."""
    memory = Memory(tmp_path, fresh(), QUIET)
    work(memory, stream(5))
    memory.save()
    work(memory, stream(9)[5:])
    harm(tmp_path)  # type: ignore[operator]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    said = io.StringIO()
    again = Memory(tmp_path, fresh(), Log("test", stream=said))
    assert (again.events, again.failures) == (0, {"memory_lost": 1})
    assert same(again.state, fresh())
    assert "starting afresh" in said.getvalue()
    kept = [path.read_bytes() for path in tmp_path.iterdir() if path.suffix not in (".bin", ".new")]
    assert sorted(kept) == sorted(before.values())
    work(again, stream(3))
    assert same(Memory(tmp_path, fresh(), QUIET).state, after(stream(3)))


def test_a_memory_of_the_version_before_is_read_and_one_of_another_put_aside(tmp_path: Path) -> None:
    """Whoever updates loses nothing; whoever goes back to a program of before starts afresh and keeps the file."""
    memory = Memory(tmp_path, fresh(), QUIET)
    work(memory, stream(6)[:4])
    memory.save()
    work(memory, stream(6)[4:])
    path = tmp_path / "snapshot.bin"
    payload = snapshot.load(path, version=SNAPSHOT_VERSION)
    assert payload is not None
    for version, is_read in ((2, True), (SNAPSHOT_VERSION + 1, False)):
        snapshot.save(path, [payload], version=version)
        said = io.StringIO()
        again = Memory(tmp_path, fresh(), Log("test", stream=said))
        assert same(again.state, after(stream(6)) if is_read else fresh())
        assert ("starting afresh" in said.getvalue()) != is_read
    assert (tmp_path / "snapshot.bin.damaged").exists()


def forge(folder: Path, records: list[bytes]) -> None:
    journal = Journal(folder / "journal.bin")
    for record in records:
        journal.append(record)
    journal.close()


def test_a_journal_is_replayed_up_to_where_it_makes_sense(tmp_path: Path) -> None:
    """Neither a record of something else nor a missing event ends the agent; what came before is kept for good."""
    events = stream(8)
    strange = [b"\xc1", freeze({"number": 6})]
    beyond = [freeze(Entry(9, events[7]))]
    for index, tail in enumerate([*[[record] for record in strange], beyond]):
        folder = tmp_path / str(index)
        memory = Memory(folder, fresh(), QUIET)
        work(memory, events[:5])
        memory.close()
        forge(folder, tail)
        again = Memory(folder, fresh(), QUIET)
        assert (again.events, again.failures) == (5, {"memory_lost": 1})
        assert (folder / "journal.bin.damaged").exists()
        work(again, events[5:])
        assert same(Memory(folder, fresh(), QUIET).state, after(events))


def test_other_channels_start_afresh_and_keep_the_old_memory(tmp_path: Path) -> None:
    """It is no damage: the old state is under a name that says so."""
    memory = Memory(tmp_path, fresh(), QUIET)
    work(memory, stream(5))
    memory.save()
    wider = Schema(channels=(*SCHEMA.channels, Channel(name="noise")))
    again = Memory(tmp_path, fresh(schema=wider), QUIET)
    assert again.events == 0
    assert same(again.state, fresh(schema=wider))
    assert (tmp_path / "snapshot.bin.other-channels").exists()


def test_changed_settings_hold_from_the_next_reading_on(tmp_path: Path) -> None:
    """What was published by the old settings is replayed by them; the new ones are those of a new agent."""
    events = stream(9)
    memory = Memory(tmp_path, fresh(warmup_frames=2, alarm_score=1.0), QUIET)
    for event in events:
        memory.keep(event)
        memory.state, _ = agent.step(memory.state, event)
    expected = memory.state
    changed = fresh(warmup_frames=50, alarm_score=9.0, lateness_ms=7000)
    again = Memory(tmp_path, changed, QUIET).state
    assert again.config == changed.config
    assert again.frames.lateness_ms == 7000
    frames = msgspec.structs.replace(expected.frames, lateness_ms=7000)
    assert same(again, msgspec.structs.replace(expected, config=changed.config, frames=frames))


def test_a_snapshot_is_there_from_the_first_start(tmp_path: Path) -> None:
    """The first start's time names the incarnation: a kill before the first minute is over must not make another one."""
    Memory(tmp_path, fresh(), QUIET).keep(stream(1)[0])
    later = agent.init(AgentConfig(agent_id="a", schema=SCHEMA, is_live=False), 999_999)
    assert Memory(tmp_path, later, QUIET).state.incarnation == 1000


def test_a_snapshot_is_due_before_a_replay_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the work in the journal, which a snapshot ends, or by its length."""
    memory = Memory(tmp_path, fresh(), QUIET)
    work(memory, stream(4))
    assert not memory.is_due
    memory.work_s += 0.9 * REPLAY_S
    assert not memory.is_due
    memory.work_s += 0.2 * REPLAY_S
    assert memory.is_due
    memory.save()
    assert not memory.is_due
    again = Memory(tmp_path, fresh(), QUIET)
    monkeypatch.setattr(memories, "JOURNAL_MOST_BYTES", 1_000)
    written = 0
    for event in stream(40)[4:]:
        assert again.is_due == (written + 8 >= 1_000)
        before = again.size_bytes
        work(again, [event])
        written += again.size_bytes - before
    assert again.is_due


def test_where_nothing_happened_nothing_is_written(tmp_path: Path) -> None:
    """A silent night costs an SD card nothing; what was written is counted to the byte."""
    memory = Memory(tmp_path, fresh(), QUIET)
    first = (tmp_path / "snapshot.bin").stat()
    assert memory.written == first.st_size
    memory.save()
    assert (tmp_path / "snapshot.bin").stat().st_ino == first.st_ino
    work(memory, stream(6))
    journal = memory.size_bytes - 8
    memory.save()
    second = (tmp_path / "snapshot.bin").stat()
    assert memory.written == first.st_size + journal + second.st_size
    again = Memory(tmp_path, fresh(), QUIET)
    again.save()
    assert (tmp_path / "snapshot.bin").stat().st_ino == second.st_ino
    assert again.written == 0
    assert same(Memory(tmp_path, fresh(), QUIET).state, after(stream(6)))


def test_a_snapshot_that_was_refused_is_written_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(tmp_path, fresh(), QUIET)
    work(memory, stream(6))
    memory.work_s = 2 * REPLAY_S

    def refuse(*_: object, **__: object) -> int:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(snapshot, "save", refuse)
        with pytest.raises(StorageError):
            memory.save()
    assert memory.is_due
    assert same(Memory(tmp_path, fresh(), QUIET).state, after(stream(6)))
    memory.save()
    assert not memory.is_due
    assert memory.size_bytes == 8
    assert same(Memory(tmp_path, fresh(), QUIET).state, after(stream(6)))
