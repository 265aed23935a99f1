"""An agent whose owner did not say how its stream is to be learnt: it chooses, says so, loses nothing and keeps its choice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bench import Bench, Desk, Running
from test_agent_process import assert_same, once_each

from edge_agent.state import AgentConfig
from fleetgp.recording.csv import Record
from fleetgp.schema import Schema
from fleetgp.wire.messages import Prediction
from simulator.fleet import Plan, run

pytestmark = pytest.mark.broker

TOPIC = "sensors/pump-1"
OPEN = "[channels]\nflow = {}\ndust = {}\n"
GIVEN = '[stream]\ninterval = 0.2\nlags = 3\nphases = ["1min"]\nharmonics = 2\ninducing = 0\n' + OPEN
START_MS = 1_700_000_000_000
QUICK = {"coordinator__round_s": 1, "coordinator__answer_s": 0.3}


def rows(count: int, step_ms: int = 200, start_ms: int = START_MS) -> list[Record]:
    return [Record(start_ms + step_ms * k, (20.0 + (k * 7 % 11), float(k * k % 13))) for k in range(count)]


def say(desk: Desk, records: list[Record], name: str = "pump-1") -> None:
    for record in records:
        flow, dust = record.values
        desk.say(f"sensors/{name}", {"time": record.at_ms, "flow": flow, "dust": dust})


def by_the_brain(schema: Schema, records: list[Record]) -> list[Prediction]:
    found: list[Prediction] = []
    plan = Plan(agent=AgentConfig(agent_id="pump-1", schema=schema, is_live=False))
    run({"pump-1": iter(records)}, plan, found.append)
    return found


def schema_of(desk: Desk, name: str) -> Schema | None:
    status = desk.status(name)
    return status.schema if status else None


def state_of(desk: Desk, name: str) -> str:
    status = desk.status(name)
    return status.state if status else ""


def note_of(desk: Desk, name: str = "pump-1") -> str:
    status = desk.status(name)
    return status.note if status else ""


def restart(desk: Desk, start: Callable[[], Running]) -> Running:
    desk.forget("fleetgp/home/agents/pump-1/status")
    running = start()
    desk.until(lambda: desk.is_online("pump-1"))
    return running


def test_what_is_left_open_is_chosen_and_said_and_no_reading_is_lost(bench: Bench, desk: Desk, broker: object) -> None:
    """Every frame from the first reading on is predicted as by a brain that knew its settings beforehand."""
    records = rows(120)
    running = bench.agent("pump-1", OPEN, agent__clock="recording")
    desk.until(lambda: state_of(desk, "pump-1") == "choosing")
    assert note_of(desk) == "no reading yet on sensors/pump-1"
    say(desk, records[:12])
    desk.until(lambda: "12 of 30 readings of flow" in note_of(desk))
    assert not desk.predictions("pump-1")
    say(desk, records[12:])
    desk.until(lambda: len(desk.predictions("pump-1")) >= len(records) - 1)
    schema = schema_of(desk, "pump-1")
    assert schema is not None
    assert (schema.interval_s, schema.phases, schema.inducing) == (0.2, (), 24)
    assert_same(desk.predictions("pump-1"), by_the_brain(schema, records))
    desk.until(lambda: state_of(desk, "pump-1") == "learning" and not note_of(desk))  # after 100 frames it is old news
    assert running.stop() == 0
    for words in ("leave open: interval, lags, phases, inducing", "interval 200ms: the readings come every 0.2 s"):
        assert words in running.said
    assert not (bench.data / "agent-pump-1" / "first-readings.bin").exists()


def test_a_restart_keeps_the_choice_and_a_kill_while_choosing_loses_nothing(
    bench: Bench, desk: Desk, broker: object
) -> None:
    def start() -> Running:
        return restart(desk, lambda: bench.agent("pump-1", OPEN, agent__clock="recording"))

    records = rows(100)
    running = start()
    say(desk, records[:20])
    desk.until(lambda: "20 of 30 readings" in note_of(desk))
    running.kill()
    running = start()
    desk.until(lambda: "20 of 30 readings" in note_of(desk))
    say(desk, records[20:60])
    desk.until(lambda: len(desk.predictions("pump-1")) >= 59)
    schema = schema_of(desk, "pump-1")
    assert schema is not None
    running.kill()
    running = start()
    desk.until(lambda: schema_of(desk, "pump-1") == schema)
    say(desk, records[60:])
    desk.until(lambda: len(once_each(desk.predictions("pump-1"))) >= 99)
    assert running.stop() == 0
    assert "as chosen before: interval 200ms" in running.said
    assert "leave open" not in running.said
    assert_same(once_each(desk.predictions("pump-1")), by_the_brain(schema, records))
    # what the owner says since then holds, the rest of the choice stays
    running = restart(desk, lambda: bench.agent("pump-1", "[stream]\nlags = 1\n" + OPEN, agent__clock="recording"))
    desk.until(lambda: schema_of(desk, "pump-1") is not None)
    found = schema_of(desk, "pump-1")
    assert found is not None
    assert (found.lags, found.interval_s) == (1, 0.2)
    assert running.stop() == 0
    assert "the settings say 1, which holds now" in running.said


def test_the_fleets_choice_wins_and_what_contradicts_it_is_named(bench: Bench, desk: Desk, broker: object) -> None:
    """A newcomer with three readings takes what the fleet has; one whose owner said otherwise is told that it stands alone."""
    programs = [bench.start("coordinator", **QUICK), bench.agent("pump-1", GIVEN, agent__clock="recording")]
    desk.until(lambda: desk.is_online("pump-1"))
    say(desk, rows(40))
    desk.until(lambda: state_of(desk, "pump-1") == "federated")
    given = schema_of(desk, "pump-1")
    assert given is not None
    swapped = "[channels]\ndust = {}\nflow = {}\n"
    programs.append(bench.agent("pump-2", swapped, agent__clock="recording"))
    desk.until(lambda: state_of(desk, "pump-2") == "federated")
    taken = schema_of(desk, "pump-2")
    assert taken is not None
    assert taken.signature() == given.signature()
    say(desk, rows(10), "pump-2")
    desk.until(lambda: len(desk.predictions("pump-2")) >= 9)
    law = desk.predictions("pump-2")[-1].channels
    record = next(r for r in rows(10) if r.at_ms == desk.predictions("pump-2")[-1].at_ms)
    assert (
        law["flow"].observed,
        law["dust"].observed,
    ) == record.values  # the order is the fleet's, the readings their own
    programs.append(bench.agent("pump-3", "[stream]\nlags = 1\n" + OPEN, agent__clock="recording"))
    refused = "the fleet's choice is not taken: it has lags 3, the settings say 1; this agent learns without the fleet"
    desk.until(lambda: refused in note_of(desk, "pump-3"))
    say(desk, rows(60), "pump-3")
    desk.until(lambda: state_of(desk, "pump-3") == "learning")
    assert [program.stop() for program in programs] == [0] * len(programs)
    assert "taken from the fleet: interval 200ms, lags 3, phases 1min, inducing 0" in programs[2].said
    assert refused in programs[3].said


def test_agents_that_chose_each_for_itself_end_with_one_schema(bench: Bench, desk: Desk, broker: object) -> None:
    """Two streams of different rates, and the coordinator comes last: one of the two follows the other."""
    programs = [bench.agent(name, OPEN, agent__clock="recording") for name in ("pump-1", "pump-2")]
    desk.until(lambda: desk.is_online("pump-1") and desk.is_online("pump-2"))
    say(desk, rows(60, 200), "pump-1")
    say(desk, rows(60, 1000), "pump-2")
    desk.until(lambda: schema_of(desk, "pump-1") and schema_of(desk, "pump-2"))
    assert schema_of(desk, "pump-1") != schema_of(desk, "pump-2")
    programs.append(bench.start("coordinator", **QUICK))
    desk.until(lambda: all(state_of(desk, name) == "federated" for name in ("pump-1", "pump-2")), 30.0)
    assert schema_of(desk, "pump-1") == schema_of(desk, "pump-2")
    say(desk, rows(20, 1000, START_MS + 100_000), "pump-1")
    say(desk, rows(20, 1000, START_MS + 100_000), "pump-2")
    desk.until(lambda: any(set(n.answered) == {"pump-1", "pump-2"} for n in desk.rounds("closed")), 30.0)
    assert [program.stop() for program in programs] == [0] * len(programs)
    follower = [p for p in programs if "the fleet chose otherwise, and is followed" in p.said]
    assert len(follower) == 1
    assert list(bench.data.glob("agent-*/snapshot.bin.other-choice"))


def test_what_fits_no_schema_ends_the_agent_with_a_word(bench: Bench, desk: Desk, broker: object) -> None:
    running = bench.agent("pump-1", '[stream]\nphases = ["200ms"]\n' + OPEN, agent__clock="recording")
    desk.until(lambda: desk.is_online("pump-1"))
    say(desk, rows(40))
    assert running.wait(15.0) == 2
    assert "stream.phases: a period needs two intervals" in running.said
    assert "Traceback" not in running.said


def test_readings_that_tell_nothing_are_bounded_and_counted(bench: Bench, desk: Desk, broker: object) -> None:
    """A device whose clock stands still: no interval can be told, and the owner is told why."""
    running = bench.agent("pump-1", OPEN, agent__clock="recording")
    desk.until(lambda: desk.is_online("pump-1"))
    say(desk, rows(900, 0))
    desk.until(lambda: desk.dropped("pump-1", "choosing_full") >= 400, 30.0)
    desk.until(lambda: "see the device's clock" in note_of(desk), 10.0)
    assert desk.health("pump-1").figures["readings_kept"] <= 400
    file = bench.data / "agent-pump-1" / "first-readings.bin"
    assert file.stat().st_size < 900 * 60
    assert running.stop() == 0
