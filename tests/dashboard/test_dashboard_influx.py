"""The dashboard on a history that a real InfluxDB keeps: the same as from a file, and what it says while the server is away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from influx_servers import InfluxServer
from running_dashboard import running
from synthetic_fleet import NOW_MS, Plan, history
from take_screenshots import SIZE, browser, settle

from dashboard.source import Source, StoreFile, find_store
from fleetgp.runtime.clock import FakeClock
from fleetgp.runtime.settings import Settings, load
from fleetgp.store.base import Batch
from fleetgp.store.open import as_environment, open_writer
from fleetgp.store.sqlite import open_writer as open_file

pytestmark = pytest.mark.influx


def written(batch: Batch, url: str, folder: Path, fleet: str) -> Settings:
    """Settings of a store on the server that holds the batch."""
    flags = {"store.kind": "influx", "store.url": url, "data.dir": str(folder / "data"), "fleet": fleet}
    settings = load(None, {}, flags)
    writer = open_writer(settings)
    writer.write(batch)
    writer.close()
    return settings


@pytest.fixture
def both(influxd: InfluxServer, tmp_path: Path) -> Iterator[tuple[Source, Source]]:
    """The same made-up fleet from the server and from a file."""
    batch = history(Plan(frames=300, rounds=8))
    settings = written(batch, influxd.url, tmp_path, "dashboard-test")
    file = open_file(tmp_path / "history.sqlite", raw_days=36500, rollup_days=36500)
    file.write(batch)
    served = find_store(f"{influxd.url}/fleetgp", as_environment(settings))
    sources = tuple(
        Source(store, clock=FakeClock(NOW_MS)) for store in (served, StoreFile(tmp_path / "history.sqlite"))
    )
    yield sources  # type: ignore[misc]
    for source in sources:
        source.close()
    file.close()


def test_a_server_shows_what_a_file_shows(both: tuple[Source, Source]) -> None:
    mine, theirs = (source.look() for source in both)
    for name in ("problem", "statuses", "healths", "events", "rounds", "readings", "predictions", "agents"):
        assert getattr(mine, name) == getattr(theirs, name), name
    assert mine.info is not None
    assert theirs.info is not None
    assert mine.info.rows == theirs.info.rows
    columns = ["temperature.observed", "temperature.low", "score"]
    for most in (1000, 50):
        windows = [source.window("press-2", columns, NOW_MS - 200_000, NOW_MS, most) for source in both]
        assert windows[0] is not None
        assert windows[1] is not None
        assert windows[0].at_ms.tolist() == windows[1].at_ms.tolist()
        for column in columns:
            assert windows[0].high[column].tolist() == windows[1].high[column].tolist()


@pytest.mark.browser
def test_a_browser_sees_the_fleet_the_outage_and_the_fleet_again(
    influxd_of_my_own: InfluxServer, tmp_path: Path
) -> None:
    server = influxd_of_my_own
    now_ms = time.time_ns() // 1_000_000_000 * 1000
    written(history(Plan(frames=300, end_ms=now_ms, now_ms=now_ms, rounds=8)), server.url, tmp_path, "hall-9")
    flags = ["--store", f"{server.url}/fleetgp", "--fleet", "hall-9", "--set", "dashboard.refresh_s=0.5"]
    with running(tmp_path / "unused", *flags) as dashboard, browser() as chromium:
        page = chromium.new_page(viewport=SIZE)
        page.goto(dashboard.url)
        settle(page)
        said = page.inner_text("body")
        assert "of 6" in said
        assert f"{server.url}/fleetgp" in said
        server.kill()
        page.get_by_text("cannot be read just now").wait_for(timeout=20_000)
        assert "Connection refused" in page.inner_text("body")
        server.start()
        page.get_by_text("Agents alive").wait_for(timeout=20_000)
        page.goto(f"{dashboard.url}/device?agent=press-2")
        settle(page)
        assert page.locator('[data-testid="stVegaLiteChart"] :is(canvas, svg)').count() >= 5
        assert page.locator('[data-testid="stException"]').count() == 0
