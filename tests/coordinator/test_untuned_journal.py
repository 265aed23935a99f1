"""A journal from before bases were learnt by gradients: taken up as it was then, and the learning begins after it."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from journal_files import rows
from tuned_fleet import AGENTS, SCHEMA, TICK_MS, wave

from coordinator import rounds
from coordinator.journal import UNTUNED_VERSION, VERSION, Journal
from coordinator.state import CoordinatorConfig, Event, State, Tick
from edge_agent.state import AgentConfig
from fleetgp.wire.freeze import freeze
from simulator.fleet import Fleet, Plan

FRAMES, ROUND_MS = 400, 12 * TICK_MS
SINCE = ("mixture", "tuning", "choice", "is_chosen", "steps", "tuned_on", "is_tuned", "averaging")


class Heard(Fleet):
    """A fleet that keeps what its coordinator hears."""

    events: list[Event]

    def _coordinate(self, event: Event) -> None:
        self.events.append(event)
        super()._coordinate(event)


@pytest.fixture(scope="module")
def heard() -> Heard:
    """Long enough that a tuning would have begun."""
    agent = AgentConfig(agent_id="any", schema=SCHEMA, is_live=False, local_inducing=0)
    fleet = Heard(Plan(agent=agent, round_ms=ROUND_MS, tuning=False), lambda _: None)
    fleet.events = []
    for moment in zip(*(wave(seed, FRAMES) for seed in range(len(AGENTS))), strict=True):
        for name, record in zip(AGENTS, moment, strict=True):
            fleet.read(name, record)
    return fleet


def without(payload: bytes, names: tuple[str, ...]) -> bytes:
    """A frozen state as a program wrote it that knew nothing of these fields, nor of tuning in the settings."""
    (length,) = struct.unpack_from("<I", payload)
    content = msgspec.msgpack.decode(payload[4 : 4 + length])
    kept = {key: value for key, value in content.items() if key not in names}
    kept["config"] = {key: value for key, value in kept["config"].items() if not key.startswith("tuning")}
    outline = msgspec.msgpack.encode(kept)
    return struct.pack("<I", len(outline)) + outline + payload[4 + length :]


def older(path: Path, fresh: State, events: list[Event]) -> None:
    """The journal of a coordinator of before, killed with all that it ever heard in it."""
    journal = Journal(path)
    journal.load(fresh, rounds.step)
    journal.append(events, fresh)
    journal.close()
    db = sqlite3.connect(path, isolation_level=None)
    payload = without(freeze(fresh), SINCE)
    db.execute("UPDATE snapshot SET crc = ?, state = ?", (zlib.crc32(payload), payload))
    db.execute(f"PRAGMA user_version = {UNTUNED_VERSION}")
    db.close()


def test_bases_keep_their_numbers_and_learning_begins_after_what_was_heard(path: Path, heard: Heard) -> None:
    """Were it replayed as if tuned, nobody would answer: the tuning would be given up before it ever began."""
    assert heard.coordinator is not None
    config = CoordinatorConfig(round_s=ROUND_MS / 1000, answer_s=0.0)
    older(path, rounds.init(config, heard.coordinator.origin), heard.events)
    journal = Journal(path)
    assert journal.aside is None
    state = journal.load(rounds.init(config, 0), rounds.step)
    assert heard.coordinator.feature_map is not None
    assert state.config == config
    assert freeze(msgspec.structs.replace(state, config=heard.coordinator.config)) == freeze(heard.coordinator)
    journal.close()
    # and it is a journal of today from here on, whatever comes next
    assert (rows(path, "PRAGMA user_version"), rows(path, "SELECT count(*) FROM events")) == (VERSION, 0)
    again = Journal(path)
    state = again.load(rounds.init(config, 0), rounds.step)
    again.close()
    assert state.steps == 0
    for _ in range(2):
        state, _ = rounds.step(state, Tick(state.next_ms))
    assert state.tuning is not None


def test_a_coordinator_that_is_not_to_tune_takes_it_up_too(path: Path, heard: Heard) -> None:
    assert heard.coordinator is not None
    config = heard.coordinator.config
    older(path, rounds.init(config, heard.coordinator.origin), heard.events)
    journal = Journal(path)
    assert freeze(journal.load(rounds.init(config, 0), rounds.step)) == freeze(heard.coordinator)
    journal.close()
    assert rows(path, "PRAGMA user_version") == VERSION
