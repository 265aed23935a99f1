"""The coordinator's memory: killed anywhere it comes back to the same state, bit for bit, and damage is said in words."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from journal_files import FRESH, STORY, killed, rows
from synthetic_agents import (
    CONFIG,
    START_MS,
    answered,
    bootstrap,
    federated,
    open_round,
    run,
    summary,
    told,
)

from coordinator import rounds
from coordinator.journal import SNAPSHOT_EVERY, SNAPSHOT_ROUNDS, Journal
from coordinator.state import CoordinatorConfig, Event, State, Tick
from fleetgp.errors import StorageError
from fleetgp.wire.freeze import freeze


def loaded(path: Path, fresh: State = FRESH) -> State:
    journal = Journal(path)
    try:
        return journal.load(fresh, rounds.step)
    finally:
        journal.close()


def test_killed_at_any_point_it_comes_back_to_the_same_state(path: Path, tmp_path: Path) -> None:
    """After every event of a story with rounds, answers and a new basis; and goes on from there as if nothing was."""
    journal = Journal(path)
    state = journal.load(FRESH, rounds.step)
    ends = set()
    for number, event in enumerate(STORY):
        after, _ = rounds.step(state, event)
        if after is not state:
            journal.append([event], state)
        state = after
        again = loaded(killed(path, tmp_path / "copy"))
        assert freeze(again) == freeze(state)
        if number % 5 == 0:
            rest, _ = run(again, STORY[number + 1 :])
            ends.add(freeze(rest))
    journal.close()
    assert ends == {freeze(state)}


def test_events_of_one_batch_are_there_together_or_not_at_all(path: Path, tmp_path: Path) -> None:
    journal = Journal(path)
    state = journal.load(FRESH, rounds.step)
    for start in range(0, len(STORY), 4):
        batch = STORY[start : start + 4]
        journal.append(batch, state)
        state, _ = run(state, batch)
    journal.close()
    assert freeze(loaded(killed(path, tmp_path / "copy"))) == freeze(run(FRESH, STORY)[0])


@pytest.mark.parametrize("settings", [{"half_life_rounds": 0.5}, {"round_s": 1.0}, {"most_agents": 1}], ids=str)
def test_what_was_lived_under_other_settings_comes_out_the_same(
    path: Path, tmp_path: Path, settings: dict[str, float]
) -> None:
    """Settings change between two starts, and no snapshot was due since: neither the past nor what comes is mixed up."""
    journal = Journal(path)
    state = journal.load(FRESH, rounds.step)
    journal.append(STORY[:-3], state)
    state, _ = run(state, STORY[:-3])
    journal.close()
    changed = msgspec.structs.replace(CONFIG, **settings)
    journal = Journal(path)
    again = journal.load(rounds.init(changed, START_MS + 10**9), rounds.step)
    state = msgspec.structs.replace(state, config=changed)
    assert freeze(again) == freeze(state)
    journal.append(STORY[-3:], again)
    lived, _ = run(again, STORY[-3:])
    # killed, and started with the first settings again
    copy = killed(path, tmp_path / "copy")
    journal.close()
    assert freeze(loaded(copy)) == freeze(msgspec.structs.replace(lived, config=CONFIG))


def test_first_start_is_remembered(path: Path) -> None:
    """(origin, basis) names a basis for good, so a second start with nothing heard must not be another origin."""
    assert loaded(path).origin == START_MS
    assert loaded(path, rounds.init(CONFIG, START_MS + 5000)).origin == START_MS


def test_snapshots_keep_the_journal_short(path: Path) -> None:
    """However long it runs: events since the last snapshot stay bounded, and so does the file."""
    journal = Journal(path)
    state = journal.load(FRESH, rounds.step)
    sizes = []
    for _ in range(8):
        for _ in range(SNAPSHOT_EVERY // 4):
            events: list[Event] = [Tick(state.next_ms), Tick(state.next_ms + 5000)]
            journal.append(events, state)
            state, _ = run(state, events)
        sizes.append(sum(file.stat().st_size for file in path.parent.iterdir()))
    journal.close()
    assert rows(path, "SELECT count(*) FROM events") <= 2 * SNAPSHOT_ROUNDS + 2
    assert max(sizes[4:]) <= 1.05 * max(sizes[:4])
    assert loaded(path).round == state.round == 8 * (SNAPSHOT_EVERY // 4)


def test_large_state_is_not_written_again_for_a_few_small_events(path: Path) -> None:
    """A fleet of thousands: a snapshot of megabytes waits for megabytes of events, so that a card wears twice as fast as
    what it is told, and not forty times."""
    one = run(open_round(federated()), [answered(summary("a", open_round(federated())))])[0]
    large = msgspec.structs.replace(one, answers={f"agent-{k}": one.answers["a"] for k in range(1000)})
    journal = Journal(path)
    journal.load(large, rounds.step)
    for _ in range(10):
        journal.append([Tick(0)] * 500, large)
    journal.append([told(bootstrap("a"))] * 8000, large)
    journal.append([Tick(0)], large)
    journal.close()
    assert rows(path, "SELECT last FROM snapshot") == 5000 + 8000
    assert rows(path, "SELECT count(*) FROM events") == 1


def test_few_large_events_are_bounded_like_many_small_ones(path: Path) -> None:
    """Answers of a megabyte: 500 of them would be half a gigabyte to read at every start."""
    journal = Journal(path)
    state = journal.load(FRESH, rounds.step)
    large = told(bootstrap("a"))
    large = msgspec.structs.replace(large, payload=large.payload + bytes(4_000_000))  # journalled, whatever it is
    for _ in range(24):
        journal.append([large], state)
    journal.close()
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 40_000_000


# ---- files that cannot be used


def written(path: Path) -> State:
    """A journal with a snapshot and events after it."""
    journal = Journal(path)
    state = journal.load(FRESH, rounds.step)
    journal.append(STORY, state)
    state, _ = run(state, STORY)
    journal.close()
    return state


def foreign_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE events (id INTEGER, event BLOB)")
        db.execute("PRAGMA user_version = 1")
    db.close()


def illegible_names(path: Path) -> None:
    """SQLite quotes them in what it says, and Python cannot read that."""
    written(path)
    content = path.read_bytes()
    assert b"CREATE TABLE events" in content
    path.write_bytes(content.replace(b"CREATE TABLE events", b"CREAT\xc5 TABLE events"))


def newer_journal(path: Path) -> None:
    written(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("my diary\n" * 1000), "not a coordinator's journal"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000), "move it away"),
        (foreign_database, "not a coordinator's journal"),
        (illegible_names, "move it away"),
        (newer_journal, "version 99"),
        (lambda path: path.mkdir(), "check that it is a file"),
    ],
    ids=["text", "damaged head", "another program's database", "illegible names", "of a newer version", "a folder"],
)
def test_file_that_is_not_ours_is_refused_in_plain_words_and_left_as_it_was(
    path: Path, make: object, words: str
) -> None:
    assert callable(make)
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StorageError, match=words) as caught:
        Journal(path)
    assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize("make", [foreign_database, newer_journal])
def test_file_that_is_refused_is_let_go_of_at_once(path: Path, make: Callable[[Path], None]) -> None:
    """Its owner can go on with it, however long the error is looked at."""
    make(path)
    with pytest.raises(StorageError) as caught:
        Journal(path)
    db = sqlite3.connect(path, timeout=0, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    db.close()
    assert caught.value.__traceback__ is not None


def test_folder_that_is_not_there_is_said_in_plain_words(path: Path) -> None:
    with pytest.raises(StorageError, match="may write in its folder"):
        Journal(path.parent / "nowhere" / path.name)


def test_flipped_byte_is_noticed_or_harmless(path: Path, tmp_path: Path) -> None:
    """One at a time, all over the file: the same state or StorageError, never another state and nothing else."""
    state = written(path)
    sound = path.read_bytes()
    words = []
    for place in range(0, len(sound), 127):
        damaged = tmp_path / f"damaged-at-{place}.sqlite"
        damaged.write_bytes(sound[:place] + bytes([sound[place] ^ 0xC1]) + sound[place + 1 :])
        try:
            assert freeze(loaded(damaged)) == freeze(state), place
        except StorageError as err:
            words.append(str(err))
    assert len(words) > len(sound) // 127 // 4
    assert all("move it away" in said and "damaged-at" in said for said in words)


@pytest.mark.parametrize(
    "loss",
    [
        "DELETE FROM events WHERE id = (SELECT max(id) FROM events)",
        "DELETE FROM events WHERE id = (SELECT min(id) + 1 FROM events)",
        "DELETE FROM events",
        "DELETE FROM snapshot",
        "UPDATE snapshot SET state = 'text'",
    ],
)
def test_lost_record_is_noticed(path: Path, loss: str) -> None:
    """Where one is gone, what follows would be a story that nobody lived; and at its end, one that was lived further."""
    journal = Journal(path)
    state = journal.load(FRESH, rounds.step)
    for _ in range(SNAPSHOT_EVERY // len(STORY) + 1):
        journal.append(STORY, state)
    journal.append(STORY, run(state, STORY)[0])  # a snapshot, and events after it
    journal.close()
    with sqlite3.connect(path) as db:
        db.execute(loss)
    db.close()
    with pytest.raises(StorageError, match="move it away"):
        loaded(path)


def test_second_coordinator_on_one_journal_is_refused(path: Path) -> None:
    """Two that write one journal in turns would be a story that nobody lived."""
    first = Journal(path)
    with pytest.raises(StorageError, match="another program has it open"):
        Journal(path)
    state = first.load(FRESH, rounds.step)
    first.append(STORY, state)
    first.close()
    assert freeze(loaded(path)) == freeze(run(FRESH, STORY)[0])


@contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    """No file of this process can grow beyond this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_refuses_whole_batches_and_the_journal_goes_on_after(path: Path) -> None:
    journal = Journal(path)
    state = journal.load(FRESH, rounds.step)
    wal = path.with_name(path.name + "-wal")
    with disk_full_at(wal.stat().st_size + 5000), pytest.raises(StorageError, match="cannot be written"):
        journal.append(STORY, state)
    journal.append(STORY, state)
    journal.close()
    assert freeze(loaded(path)) == freeze(run(FRESH, STORY)[0])


def test_killed_for_real_it_keeps_what_it_said_it_kept(path: Path) -> None:
    """A process that journals and is killed in the middle of it: everything it had reported is there."""
    program = (
        "import sys; from pathlib import Path\n"
        "from coordinator import rounds; from coordinator.journal import Journal\n"
        "from coordinator.state import CoordinatorConfig, Tick\n"
        "journal = Journal(Path(sys.argv[1])); state = journal.load(rounds.init(CoordinatorConfig(), 0), rounds.step)\n"
        "while True:\n"
        "    event = Tick(state.next_ms if state.open_round is None else state.open_round.deadline_ms)\n"
        "    journal.append([event], state); state, _ = rounds.step(state, event); print(state.round, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said = int(line)
            if said >= 300:  # past the first snapshot after 500 events
                process.kill()
                break
        said = max([said, *(int(line) for line in process.stdout if line.endswith("\n"))])
    assert loaded(path, rounds.init(CoordinatorConfig(), 0)).round in (said, said + 1)
