"""``fleetgp backtest --model``: every model on one made recording, one table, one report; words that are none are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simulated_streams import SPEC, records, write_csv

from fleetgp.errors import ConfigError
from fleetgp.models import MODELS, PARTS, Model
from simulator import cli
from simulator.compared import verdicts, wanted
from simulator.devices import Device


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("recorded")
    files = [write_csv(folder / f"pump_{k}.csv", records(Device("", k), 0, 320)) for k in range(3)]
    spec = folder / "spec.toml"
    spec.write_text(SPEC.replace("inducing = 0", "inducing = 6"))
    return [*map(str, files), "--spec", str(spec), "--round", "40s"]


def test_all_models_on_one_recording(given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its own law: no two say the same; those without the fleet move no byte, the others the more the more they tell."""
    target = tmp_path / "out.json"
    assert cli.backtest([*given, "--json", str(target), "--model", *MODELS]) == 0
    reports: dict[Model, Any] = json.loads(target.read_text())["models"]
    assert list(reports) == list(MODELS)
    # in so short a recording no average of pFedGP is far enough from an agent's own lengthscale to be taken
    assert len({report["overall"]["rmse"] for model, report in reports.items() if model != "pfedgp"}) == len(MODELS) - 1
    assert 0 < reports["pfedgp"]["bytes_per_round"] < 0.1 * reports["full"]["bytes_per_round"]
    assert len({(report["frames"], report["overall"]["n"]) for report in reports.values()}) == 1
    for model, report in reports.items():
        assert report["model"] == model
        has_rounds = PARTS[model].shared or PARTS[model].kernel
        assert (report["rounds_closed"] > 0) == has_rounds == (report["mode"] == "fleet")
        assert report["left_out"] == {}
        assert 0.8 < report["overall"]["coverage90"] < 0.99
        assert report["overall"]["rmse"] < report["overall"]["rmse_persistence"]
    table = capsys.readouterr().out
    assert max(map(len, table.splitlines())) <= 110
    for model, report in reports.items():
        row = next(line for line in table.splitlines() if line.startswith(f"{model} "))
        assert f"{report['overall']['rmse']:.4f}" in row
        assert f"{report['overall']['nll']:.4f}" in row


def test_one_model_is_a_report_of_its_own_and_the_older_words_mean_the_same(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def overall(*flags: str) -> dict[str, Any]:
        assert cli.backtest([*given, "--end", "2026-03-04T09:17:30Z", "--json", "-", *flags]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["overall"]
        return found

    alone = overall("--mode", "alone")
    assert overall("--model", "alone") == alone
    assert overall("--model", "full") == overall("--mode", "fleet") == overall() != alone


@pytest.mark.parametrize(
    ("words", "mode", "says"),
    [
        (["allone"], None, r'allone.*did you mean "alone"'),
        (["full", "global"], None, r'global.*did you mean "global-only"'),
        (["full", "a.csv"], None, "'a.csv' is no model.*name the files before --model"),
        (["full"], "alone", "older form of --model"),
    ],
)
def test_words_that_are_no_models_are_told(words: list[str], mode: str | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        wanted(words, mode)


def test_models_come_once_each_and_in_one_order() -> None:
    assert wanted(["alone", "full", "alone"], None) == ("full", "alone")
    assert wanted([], None) == wanted([], "fleet") == ("full",)
    assert wanted([], "alone") == ("alone",)


def test_verdicts_count_the_devices_for_which_a_model_is_worse() -> None:
    def report(nll: float | None, *agents: float | None) -> dict[str, Any]:
        return {"overall": {"nll": nll}, "agents": {str(k): {"nll": one} for k, one in enumerate(agents)}}

    reports: dict[Model, Any] = {
        "full": report(0.1, 0.1, 0.2, None), "no-local": report(0.35, 0.3, 0.1, 0.5), "alone": report(0.05, 0.0, 0.1, None),
        "local-only": report(None, None, None, None),
    }  # fmt: skip
    assert verdicts(reports) == [
        "no-local      0.2500 nats a reading worse than full; worse for 1 of 2 devices",
        "alone         0.0500 nats a reading BETTER than full; worse for 0 of 2 devices",
    ]
