"""Pruning drops what was asked for, leaves the rest exact, and can be killed or run beside the bridge."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp.errors import StorageError
from fleetgp.store import sqlite_prune, sqlite_upkeep
from fleetgp.store.base import Batch, Row
from fleetgp.store.sqlite import open_reader, open_writer
from fleetgp.store.sqlite_prune import Choice, Doomed, compact, doomed, prune
from fleetgp.store.sqlite_report import examine
from fleetgp.wire.messages import AnomalyEvent, RoundNotice

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
T0 = 1_700_000_000_000 // DAY * DAY
ALL = (-(2**62), 2**62)
SERIES = ("reading", "prediction", "health")


def rows(series: str, count: int, kind: str = "reading", step_ms: int = 10 * MINUTE) -> list[Row]:
    return [
        Row(kind, series, T0 + step_ms * i, {"a": float(i % 83), "b": -float(i)}, T0, i)  # type: ignore[arg-type]
        for i in range(count)
    ]


def filled(path: Path) -> None:
    writer = open_writer(path, raw_days=900, rollup_days=1825)
    batch = [*rows("pump", 1000), *rows("fan", 1000), *rows("pump", 500, "prediction"), *rows("bridge", 100, "health")]
    writer.write(Batch(rows=batch))
    for _ in range(4):
        writer.maintain(10**15)
    writer.close()


def do(path: Path, choice: Choice) -> dict[str, int]:
    return prune(path, choice, doomed(path, choice), lambda _: None)


def test_old_rows_and_their_summaries_go_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    filled(path)
    cut = T0 + 3 * DAY + 5 * HOUR
    before = open_reader(path).window("reading", "pump", ["a"], cut, 2**62, 100)
    choice = Choice(SERIES, before_ms=cut)
    plan = doomed(path, choice)
    old = sum(r.at_ms < cut for r in rows("pump", 1000))
    assert [(one.kind, one.name, one.rows) for one in plan] == [
        ("reading", "fan", old),
        ("reading", "pump", old),
        ("prediction", "pump", old),
        ("health", "bridge", 100),
    ]
    assert do(path, choice) == {"reading": 2 * old, "prediction": old, "health": 100}
    reader = open_reader(path)
    assert reader.sequences("pump") == [r.sequence for r in rows("pump", 1000) if r.at_ms >= cut]
    assert next(info for info in reader.series("reading") if info.name == "pump").first_ms == cut
    after = reader.window("reading", "pump", ["a"], *ALL, 100)
    assert after.step_ms == before.step_ms > 0
    for one, other in ((before.at_ms, after.at_ms), (before.mean["a"], after.mean["a"])):
        np.testing.assert_array_equal(one, other)
    assert doomed(path, choice) == []


def test_single_rows_go_and_summaries_stay(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    filled(path)
    before = open_reader(path).window("reading", "pump", ["a", "b"], *ALL, 40)
    choice = Choice(("reading",), ("pump",), T0 + 5 * DAY, keeps_rollups=True)
    assert do(path, choice) == {"reading": 5 * 144}
    after = open_reader(path).window("reading", "pump", ["a", "b"], *ALL, 40)
    assert after.step_ms == before.step_ms >= HOUR
    for name in ("a", "b"):
        np.testing.assert_array_equal(before.mean[name], after.mean[name])
        np.testing.assert_array_equal(before.low[name], after.low[name])
    assert len(open_reader(path).sequences("fan")) == 1000
    assert doomed(path, choice) == []


@settings(max_examples=25, deadline=None)
@given(
    places=st.lists(st.integers(-100, 3000), min_size=1, max_size=80, unique=True),
    cut=st.integers(-110, 3010),
    upkeep=st.integers(0, 3),
)
def test_what_is_not_older_stays_exact_whatever_is_rolled_up(
    tmp_path_factory: pytest.TempPathFactory, places: list[int], cut: int, upkeep: int
) -> None:
    path = tmp_path_factory.mktemp("prune") / "h.sqlite"
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((sqlite_upkeep, "ROWS_A_STEP"), (sqlite_prune, "ROWS_A_STEP")):
            patch.setattr(module, name, 7)
        patch.setattr(sqlite_upkeep, "MINUTES_A_STEP", 5)
        writer = open_writer(path, raw_days=900, rollup_days=1825)
        all_rows = [Row("reading", "x", T0 + MINUTE * p, {"a": float(p)}, T0, None) for p in places]
        writer.write(Batch(rows=all_rows))
        for _ in range(upkeep):
            writer.maintain(10**15)
        do(path, Choice(("reading",), ("x",), T0 + MINUTE * cut))
        writer.maintain(10**15)
    left = {float(p) for p in places if p >= cut}
    reader = open_reader(path)
    assert reader.info().rows == len(left)
    for most in (1, 3, 1000):
        window = reader.window("reading", "x", ["a"], T0 + MINUTE * cut, 2**62, most)
        assert len(window.at_ms) <= most
        assert (len(window.at_ms) > 0) == bool(left)
        if left:
            assert (np.nanmin(window.low["a"]), np.nanmax(window.high["a"])) == (min(left), max(left))


def test_a_series_goes_whole_and_comes_anew(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    filled(path)
    bridge = open_writer(path, raw_days=900, rollup_days=1825)
    bridge.write(Batch(rows=[Row("reading", "pump", T0 + 10 * DAY, {"a": 1.0}, T0, 5000)]))
    choice = Choice(("reading", "prediction"), ("pump",))
    assert [(one.kind, one.rows, one.is_whole) for one in doomed(path, choice)] == [
        ("reading", 1001, True),
        ("prediction", 500, True),
    ]
    do(path, choice)
    reader = open_reader(path)
    assert [info.name for info in reader.series("reading")] == ["fan"]
    assert reader.series("prediction") == []
    assert reader.info().rows == 1100
    # what the bridge remembers of the series must not lead it astray
    assert bridge.write(Batch(rows=[Row("reading", "pump", T0, {"z": 7.0, "a": 1.0}, T0, 0)])).written == 1
    bridge.maintain(10**15)
    found = {info.name: info for info in reader.series("reading")}
    assert found["pump"].channels == ("z", "a")
    assert found["pump"].rows == 1
    connection = sqlite3.connect(path)
    ids = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name GLOB 's[0-9]*'")}
    assert ids == {f"s{number}" for (number,) in connection.execute("SELECT id FROM series")}
    known = "SELECT id FROM series"
    for table in ("columns", "rollup", "hourly", "dirty", "dirty_hours"):
        strays = f"SELECT count(*) FROM {table} WHERE series_id NOT IN ({known})"
        assert connection.execute(strays).fetchone() == (0,)


def test_a_removal_that_was_killed_is_finished_by_the_bridges_upkeep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_upkeep, "ROWS_A_STEP", 300)
    path = tmp_path / "h.sqlite"
    filled(path)
    choice, rests = Choice(("reading",), ("pump",)), []

    def killed(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune(path, choice, doomed(path, choice), killed)
    reader = open_reader(path)
    assert [info.name for info in reader.series("reading")] == ["fan"]
    assert reader.info().series == 3
    assert examine(path).waiting["series_being_removed"] == 1
    bridge = open_writer(path, raw_days=900, rollup_days=1825)
    assert bridge.write(Batch(rows=rows("pump", 5))).written == 5
    for _ in range(40):
        bridge.maintain(10**15)
    assert examine(path).waiting["series_being_removed"] == 0
    assert reader.sequences("pump") == [0, 1, 2, 3, 4]
    assert sqlite3.connect(path).execute("SELECT count(*) FROM sqlite_master WHERE name = 's1'").fetchone() == (0,)


def test_events_and_rounds_go_by_their_age_where_they_are_named(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    writer = open_writer(path, raw_days=900, rollup_days=1825)
    events = [
        AnomalyEvent(
            agent="a", event_id=f"e{i}", state="closed", at_ms=T0 + i, start_ms=T0 + i, peak_score=9.0, peak_ms=T0
        )
        for i in range(2500)
    ]
    notices = [RoundNotice(round=i, state="closed", at_ms=T0 + i, basis=0) for i in range(50)]
    writer.write(Batch(events=events, rounds=notices))
    choice = Choice(("event",), before_ms=T0 + 2100)
    assert doomed(path, choice) == [Doomed("event", "", 2100, T0, T0 + 2099, False)]
    assert do(path, choice) == {"event": 2100}
    reader = open_reader(path)
    assert [one.event_id for one in reader.events()] == [f"e{i}" for i in range(2499, 2099, -1)]
    assert len(reader.rounds()) == 50
    assert do(path, Choice(("round",))) == {"round": 50}
    assert reader.rounds() == []


def test_an_unknown_series_is_told_and_nothing_goes(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    filled(path)
    with pytest.raises(StorageError, match="no series 'pmup'"):
        doomed(path, Choice(SERIES, ("pump", "pmup")))
    assert open_reader(path).info().rows == 2600


def test_compacting_gives_the_room_back(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    filled(path)
    do(path, Choice(("reading",)))
    free_mb = examine(path).free_mb
    assert free_mb > 0.05
    before, after = compact(path)
    assert before - after >= 0.9e6 * free_mb
    assert examine(path).free_mb == 0
    assert open_reader(path).info().rows == 600


def test_a_full_disk_is_told_before_compacting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.sqlite"
    filled(path)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1_000))
    with pytest.raises(StorageError, match="of free disk, there are 0"):
        compact(path)
    assert open_reader(path).info().rows == 2600


# A writing program: two live series and upkeep, one line a batch; ends with 1 where a write is refused.
BRIDGE = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from fleetgp.store.base import Batch, Row
    from fleetgp.store.sqlite import open_writer
    writer = open_writer(Path(sys.argv[1]), raw_days=900, rollup_days=1825, busy_s=10)
    first = int(sys.argv[2])
    for k in range(100_000):
        rows = [Row("reading", s, first + 1000 * n, {"a": 1.0 * n}, 1, 10_000 + n) for n in range(5 * k, 5 * k + 5)
                for s in ("pump", "new")]
        assert writer.write(Batch(rows=rows)).written == 10
        if k % 5 == 0:
            writer.maintain(10**15)
        print(k, flush=True)
        time.sleep(0.002)
""")


def test_pruning_beside_a_writing_process_stops_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_upkeep, "ROWS_A_STEP", 50)
    monkeypatch.setattr(sqlite_prune, "ROWS_A_STEP", 50)
    path, script = tmp_path / "h.sqlite", tmp_path / "bridge.py"
    filled(path)
    script.write_text(BRIDGE)
    live = T0 + 20 * DAY
    command = [sys.executable, str(script), str(path), str(live)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for choice in (Choice(("reading",), before_ms=T0 + 4 * DAY), Choice(("reading",), ("fan",))):
            prune(path, choice, doomed(path, choice), time.sleep)
        told = int(child.stdout.readline())
        assert child.poll() is None
        child.send_signal(signal.SIGKILL)
    reader = open_reader(path)
    assert [info.name for info in reader.series("reading")] == ["new", "pump"]
    old = [r.sequence for r in rows("pump", 1000) if r.at_ms >= T0 + 4 * DAY]
    found = reader.sequences("pump")
    assert found[: len(old)] == old
    assert found[len(old) :] == reader.sequences("new")
    assert len(reader.sequences("new")) >= 5 * told
