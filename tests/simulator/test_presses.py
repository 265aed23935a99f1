"""Simulated presses, and the recording of them that comes with the project."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from simulator import cli
from simulator.presses import CHANNELS, CYCLE_S, Press, schema, stroke

EXAMPLE = Path(__file__).parents[2] / "examples" / "presses.csv"


def test_the_example_is_what_presses_read() -> None:
    with EXAMPLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 480
    press = Press("press-3", 3)
    found = np.array([[float(row[c.name]) for c in CHANNELS] for row in rows if row["device"] == "press-3"])
    made = np.array([press.read(float(t)) for t in range(480)])
    np.testing.assert_allclose(found, made, rtol=1e-5)


def test_a_press_repeats_its_own_stroke_and_its_errors_go_on() -> None:
    press = Press("press-1", 1)
    cycles = np.array([press.read(float(t)) for t in range(60 * 60)]).reshape(60, 60, 4)
    curve = cycles.mean(axis=0)
    errors = (cycles - curve).reshape(-1, 4)
    assert np.all(np.std(curve, axis=0) > 5 * np.std(errors, axis=0))
    goes_on = np.sum(errors[1:] * errors[:-1], axis=0) / np.sum(errors**2, axis=0)
    np.testing.assert_allclose(goes_on, 0.6, atol=0.06)
    np.testing.assert_allclose(stroke(0.3), stroke(1.3), atol=1e-12)
    assert schema().cycle_s == CYCLE_S


def test_a_fleet_of_presses_foresees_better_than_presses_alone(tmp_path: Path) -> None:
    """What each press took for its own before it heard of the others is learnt anew beside what they share."""
    target = tmp_path / "out.json"
    flags = ["--spec", str(EXAMPLE.with_name("cycle.toml")), "--end", "2026-03-02T06:04Z", "--json", str(target)]
    assert cli.backtest([str(EXAMPLE), *flags, "--model", "full", "alone"]) == 0
    full, alone = (json.loads(target.read_text())["models"][model]["agents"] for model in ("full", "alone"))
    gains = [alone[name]["nll"] - full[name]["nll"] for name in full]
    assert min(gains) > 0.0
    assert np.mean(gains) > 0.01
