"""What ``fleetgp demo --headless --seconds N --json FILE`` promises machines."""

from __future__ import annotations

import json

import pytest
from bench import DEMO_KEYS, Bench, Running, processes_of


@pytest.mark.broker
def test_the_contract_for_machines(contract_demo: tuple[Bench, Running]) -> None:
    """Ends by itself with 0 and every figure of the contract, each what it must be after half a minute."""
    bench, running = contract_demo
    assert running.wait(60.0) == 0, running.said
    report = json.loads((bench.folder / "out.json").read_text())
    assert set(report) == DEMO_KEYS
    # five devices for 30 s; the sixth joins later
    assert 140 <= report["frames"] <= 160
    assert report["frames_lost"] == 0
    assert report["agents"] == 5
    assert report["frames"] - 3 * 5 <= report["predictions_stored"] <= report["frames"]
    assert report["rounds_closed"] >= 2
    assert report["dashboard_ok"] is True
    assert report["broker"] in ("mosquitto", "nats")
    assert 0.5 < report["coverage90"] <= 1.0
    assert 0 < report["rmse"] < 2 * report["rmse_persistence"]
    assert 10 < report["agent_rss_mb"] < 100
    assert report["bytes_per_round"] > 100
    assert report["events"] == len(report["event_agents"]) == 0, "the fault comes after 30 s"
    assert processes_of(bench.data) == []
