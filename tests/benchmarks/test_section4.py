"""Section 4's simulator, oracle and metrics against independent truth, and the arithmetic of its figures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from benchmarks import section4, section4_metrics, section4_models
from benchmarks.section4 import Table
from benchmarks.section4_data import PHI, Device, Scenario, oracle, simulate


@pytest.mark.parametrize("scenario", get_args(Scenario))
def test_the_oracle_knows_what_the_simulator_does(scenario: Scenario) -> None:
    """Over ten seeds its standardised errors have variance 1, and its 90 % intervals hold 90 %; with the interaction it leaves out, fewer."""
    z = []
    for seed in range(10):
        devices = simulate(seed, scenario, (12, 12))
        for device, (mean, cov) in zip(devices, oracle(devices, scenario), strict=True):
            L = np.linalg.cholesky(cov)
            z.append(np.linalg.solve(L, (device.Ys - mean)[..., None])[..., 0])
    spread, inside = np.mean(np.square(z)), np.mean(np.abs(z) < 1.645)
    if scenario == "C":
        assert spread > 1.05
    else:
        # errors within a run go together: 20 devices of some 10 independent ones each and channel
        assert spread == pytest.approx(1.0, abs=0.12)
        assert inside == pytest.approx(0.9, abs=0.03)


def test_the_oracle_at_its_own_readings_is_a_dense_regression() -> None:
    """One device of three inputs, channel by channel and by hand."""
    devices = simulate(4, "A", (3,))
    (d,) = devices
    mean, cov = oracle(devices, "A")[0]
    points = np.concatenate((d.X, d.Xs[:1]))

    def k(x: float, z: float, q: int, p: int) -> float:
        smooth, rough = math.exp(-0.5 * ((x - z) / 2) ** 2), math.exp(-0.5 * ((x - z) / 0.35) ** 2)
        return float(smooth * (d.Bg[q] @ d.Bg[p] + PHI * d.Bd[q] @ d.Bd[p]) + 0.15 * rough * d.Bl[q] @ d.Bl[p])

    K = np.array([[k(x, z, q, p) for z in points for p in range(4)] for x in points for q in range(4)])
    seen = K[:12, :12] + 0.05**2 * np.eye(12)
    np.testing.assert_allclose(mean[0], K[12:, :12] @ np.linalg.solve(seen, d.Y.ravel()), rtol=1e-8, atol=1e-8)
    expected = K[12:, 12:] - K[12:, :12] @ np.linalg.solve(seen, K[:12, 12:]) + 0.05**2 * np.eye(4)
    np.testing.assert_allclose(cov[0], expected, rtol=1e-8, atol=1e-10)


def test_metrics_are_those_of_scipy_and_of_the_definition_of_the_crps() -> None:
    rng = np.random.default_rng(0)
    Y, mean, variance = rng.standard_normal((5, 2)), rng.standard_normal((5, 2)), rng.uniform(0.2, 2, (5, 2))
    told = section4_metrics.judge(Y, mean, variance)
    laws = scipy.stats.norm(mean, np.sqrt(variance))
    assert told["nll"] == pytest.approx(-np.mean(laws.logpdf(Y)), rel=1e-12)
    assert told["coverage80"] == np.mean((laws.cdf(Y) > 0.1) & (laws.cdf(Y) < 0.9))
    assert told["width95"] == pytest.approx(np.mean(laws.ppf(0.975) - laws.ppf(0.025)), rel=1e-12)
    crps = [
        scipy.integrate.quad(
            lambda t, y=y, m=m, s=s: (scipy.stats.norm.cdf(t, m, s) - (t >= y)) ** 2, -12, 12, points=[y]
        )[0]
        for y, m, s in zip(Y.ravel(), mean.ravel(), np.sqrt(variance).ravel(), strict=True)
    ]
    assert told["crps"] == pytest.approx(np.mean(crps), rel=1e-6)
    exact = scipy.stats.norm.ppf((np.arange(2000) + 0.5) / 2000)[:, None]
    assert section4_metrics.judge(exact, np.zeros_like(exact), np.ones_like(exact))["pit"] < 1e-9


def runs(ours: list[float], theirs: list[float], setting: str = "A") -> list[dict[str, Any]]:
    """Rows of the whole model and of all ablations, of which the last are worse by as much as told."""
    rows = []
    for seed, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for model in ("full", "alone", "oracle", *section4_models.ABLATIONS):
            value = a if model == "full" else b
            row = dict.fromkeys(section4.TOLD, 1.0) | {
                "setting": setting,
                "model": model,
                "seed": seed,
                "ms_per_step": 1.0,
            }
            rows.append(row | {"rmse": value, "nll": math.log(value), "rmse_by_client": [value, 2 * value]})
    return rows


def test_figures_of_too_few_seeds_are_looks_and_judge_nothing() -> None:
    told = section4.figures(Table(runs([1.0, 1.1], [2.0, 2.2])))
    assert told["look.section4.A.full.rmse"] == pytest.approx(1.05)
    # two values 0.1 apart: half width t(0.975, 1) * 0.05
    assert told["look.section4.A.full.rmse_ci95"] == pytest.approx(12.7062 * 0.05, rel=1e-4)
    assert told["look.section4.A.full.rmse_vs_oracle"] == pytest.approx(0.5)
    assert not any(name.startswith("section4.") for name in told)
    whole = section4.figures(Table(runs([1.0] * 30, [2.0] * 30)))
    assert whole["section4.A.full_vs_best_ablation"] == pytest.approx(0.5)


def test_better_means_on_every_ablation_and_beyond_the_interval() -> None:
    rng = np.random.default_rng(0)
    theirs = list(2 + 0.5 * rng.random(30))
    better = section4.figures(Table(runs([0.9 * v for v in theirs], theirs)))
    level = section4.figures(
        Table(runs([v * f for v, f in zip(theirs, rng.uniform(0.8, 1.2, 30), strict=True)], theirs))
    )
    assert better["section4.A.full_better_than_ablations"] == 1.0
    assert level["section4.A.full_better_than_ablations"] == 0.0


def test_clients_that_lose_by_the_fleet_are_counted() -> None:
    rows = runs([1.0] * 30, [1.0] * 30, "unbalanced")
    for row in rows:
        if row["model"] == "full":
            row["rmse_by_client"] = [0.9, 2.05]
    assert section4.figures(Table(rows))["section4.unbalanced.worse_clients"] == 1.0


def test_the_better_peer_is_the_one_that_is_compared_with_in_errors_and_seconds() -> None:
    rows = []
    for seed in range(30):
        for model, rmse, seconds in (("ours", 0.1, 0.5), ("fleet", 0.05, 1.0), ("svgp", 0.4, 2.0), ("lmc", 0.2, 6.0)):
            row = dict.fromkeys(section4.TOLD, 1.0) | {"setting": "gpytorch", "model": model, "seed": seed}
            rows.append(row | {"rmse": rmse, "seconds": seconds, "rounds": 100})
    told = section4.figures(Table(rows))
    assert told["section4.gpytorch.rmse_ratio"] == pytest.approx(0.5)
    assert told["section4.gpytorch.speedup"] == pytest.approx(12)
    assert told["section4.gpytorch.speedup_svgp"] == pytest.approx(4)
    assert told["section4.gpytorch.lmc.steps"] == 100
    assert told["section4.gpytorch.fleet.rmse"] == pytest.approx(0.05)


def test_ours_on_one_device_learns_from_that_alone_and_the_fleets_row_from_all(monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[tuple[str, int]] = []

    def structured(model: str, devices: list[Device], seed: int) -> section4_models.Fit:
        learnt.append((model, len(devices)))
        law = np.zeros((200, 4)), np.zeros((200, 4, 4))
        return section4_models.Fit([law] * len(devices), [np.eye(4)] * len(devices), 1.0, 1.0, 20, 0.0)

    monkeypatch.setattr(section4_models, "structured", structured)
    devices = simulate(0, "A", (5, 5))
    told = [section4_models.fit_one(model, devices, 0) for model in ("ours", "fleet")]
    assert learnt == [("alone", 1), ("full", 2)]
    assert {len(one.laws) for one in told} == {1}


def test_a_run_that_was_broken_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds and models that are in the file are not run again; a run without --resume begins anew."""
    asked: list[tuple[str, int]] = []

    def quickly(setting: section4.Setting, wanted: list[tuple[str, int]], workers: int) -> list[dict[str, Any]]:
        asked.extend(wanted)
        return [row for row in runs([1.0, 1.0], [2.0, 2.0]) if (row["model"], row["seed"]) in wanted]

    monkeypatch.setattr(section4, "runs", quickly)
    file = str(tmp_path / "out.json")
    assert section4.main(["--seeds", "1", "--models", "full", "--json", file]) == 0
    assert section4.main(["--seeds", "2", "--models", "full", "oracle", "--resume", "--json", file]) == 0
    assert asked[:4] == [("full", 0), ("oracle", 0), ("full", 1), ("oracle", 1)]
    told = json.loads(Path(file).read_text())
    assert told["figures"]["look.section4.A.full.rmse_vs_oracle"] == 0.5
    before = Path(f"{file}.runs.jsonl").read_text()
    assert section4.main(["--seeds", "1", "--models", "full", "--json", file]) == 0
    assert Path(f"{file}.runs.jsonl.before").read_text() == before
    assert {bar["holds"] for bar in told["bars"]} == {None}


@pytest.mark.parametrize("model", section4_models.MODELS)
def test_every_model_foresees_better_than_the_readings_mean(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices of 25 inputs, few rounds."""
    monkeypatch.setattr(section4_models, "ROUNDS", 4)
    if model == "algorithm1":
        pytest.importorskip("torch", reason="no torch here: pip install -c constraints.txt -e '.[learn]'")
        from fleetgp.gp import meanfield

        monkeypatch.setattr(meanfield, "ROUNDS", 4)
        monkeypatch.setattr(meanfield, "STEPS", 20)
    devices = simulate(0, "A", (25, 25))
    fitted = section4_models.fit(model, devices, "A", 0)
    for device, (mean, cov) in zip(devices, fitted.laws, strict=True):
        assert np.mean((mean - device.Ys) ** 2) < np.mean((device.Ys - device.Y.mean(axis=0)) ** 2)
        assert np.all(np.linalg.eigvalsh(cov) > 0)
    # what travels: nothing of those that stay alone, next to nothing of pFedGP's lengthscale
    assert (fitted.bytes_a_round > 100) == (model in (*section4_models.FEDERATED, "algorithm1"))
