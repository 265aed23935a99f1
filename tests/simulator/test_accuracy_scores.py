"""Scores of whole laws, errors in own units, and joiners' first days, against scipy one prediction after another."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

from fleetgp.schema import Channel, Schema
from fleetgp.wire.messages import ChannelPrediction, Prediction
from simulator.accuracy import BLOCK, DAY_MS, Accuracy

SCHEMA = Schema(channels=(Channel(name="a", unit="K"), Channel(name="dust", unit="ug", transform="log1p")))
FORWARD: dict[str, Callable[[float], float]] = {"a": float, "dust": math.log1p}
BACKWARD: dict[str, Callable[[float], float]] = {"a": float, "dust": math.expm1}


class Case(NamedTuple):
    """One law in the transformed unit with what came, and the last reading before it (own unit).

    joint: this reading's part of its frame's joint log density, NaN where the frame told none of all its readings.
    """

    agent: str
    at_ms: int
    channel: str
    location: float
    scale: float
    degrees: float
    seen: float
    before: float
    joint: float = math.nan


def stream(n: int, seed: int) -> tuple[list[Prediction], list[Case]]:
    """Random predictions of three agents in turn by chance, an hour apart, with holes and with laws that were not told."""
    rng, joint_rng = np.random.default_rng(seed), np.random.default_rng(seed + 1000)
    last: dict[tuple[str, str], float] = {}
    predictions, cases = [], []
    for k in range(n):
        agent = str(rng.choice(["p", "q", "r"]))
        laws: dict[str, ChannelPrediction] = {}
        of_frame: list[Case] = []
        for name in ("a", "dust"):
            location, scale = float(rng.normal(3, 1)), float(rng.uniform(0.1, 2))
            degrees = float(rng.choice([3, 4, 5, 7, 10, 15, 30]))
            if rng.random() < 0.1:
                scale = degrees = 0.0
            mean, low, high = (BACKWARD[name](location + shift) for shift in (0.0, -1.0, 1.0))
            seen = BACKWARD[name](location + float(rng.standard_t(3)))
            is_missing = rng.random() < 0.15
            laws[name] = ChannelPrediction(
                mean=mean, low=low, high=high, observed=None if is_missing else seen, scale=scale, degrees=degrees
            )
            if is_missing:
                continue
            if (agent, name) in last:
                of_frame.append(Case(agent, k * 3_600_000, name, location, scale, degrees, seen, last[agent, name]))
            last[agent, name] = seen
        density = None if joint_rng.random() < 0.2 else float(joint_rng.normal(-3, 1))
        came = sum(law.observed is not None for law in laws.values())
        if density is not None and came == len([c for c in of_frame if c.scale]):
            of_frame = [case._replace(joint=density / came) for case in of_frame]
        cases += of_frame
        predictions.append(
            Prediction(
                at_ms=k * 3_600_000,
                agent=agent,
                sequence=k,
                channels=laws,
                score=0.0,
                threshold=8.0,
                log_density=density,
            )
        )
    return predictions, cases


def collected(predictions: list[Prediction], **settings: Any) -> dict[str, Any]:
    accuracy = Accuracy(SCHEMA, **settings)
    for prediction in predictions:
        accuracy.add(prediction)
    return accuracy.report()


def deviations(cases: list[Case]) -> dict[str, float]:
    return {name: float(np.std([FORWARD[name](c.seen) for c in cases if c.channel == name])) for name in FORWARD}


def crps(case: Case) -> float:
    """The integral of (F(x) - 1{x >= y})^2 by quadrature, F scipy's."""
    z = (FORWARD[case.channel](case.seen) - case.location) / case.scale
    below = scipy.integrate.quad(lambda x: scipy.special.stdtr(case.degrees, x) ** 2, -math.inf, z)[0]
    above = scipy.integrate.quad(lambda x: scipy.special.stdtr(case.degrees, -x) ** 2, z, math.inf)[0]
    return float(case.scale * (below + above))


def expected(cases: list[Case], sd: dict[str, float]) -> dict[str, Any]:
    """The figures by their definitions, one prediction after another."""
    y = np.array([FORWARD[c.channel](c.seen) for c in cases])
    s = np.array([sd[c.channel] for c in cases])
    error = (y - [c.location for c in cases]) / s
    step = (y - [FORWARD[c.channel](c.before) for c in cases]) / s
    told = [c for c in cases if c.scale]
    # the law of the scaled reading y / sd itself
    laws = [scipy.stats.t(c.degrees, c.location / sd[c.channel], c.scale / sd[c.channel]) for c in told]
    scaled = [FORWARD[c.channel](c.seen) / sd[c.channel] for c in told]
    inside = {
        share: np.mean(
            [low <= v <= high for law, v in zip(laws, scaled, strict=True) for low, high in [law.interval(share)]]
        )
        for share in (0.5, 0.8, 0.95)
    }
    return {
        "n": len(cases),
        "rmse": np.sqrt(np.mean(error**2)),
        "rmse_persistence": np.sqrt(np.mean(step**2)),
        "coverage90": np.mean([abs(FORWARD[c.channel](c.seen) - c.location) <= 1 for c in cases]),
        "n_law": len(told),
        "nll": np.mean([-law.logpdf(v) for law, v in zip(laws, scaled, strict=True)]),
        "nll_joint": np.mean([-c.joint - math.log(sd[c.channel]) for c in told if not math.isnan(c.joint)]),
        "crps": np.mean([crps(c) / sd[c.channel] for c in told]),
        "coverage50": inside[0.5],
        "coverage80": inside[0.8],
        "coverage95": inside[0.95],
    }


def test_figures_are_those_of_a_plain_loop_with_scipy() -> None:
    """Every table of the report; 1e-6 for quadrature and for logarithms that went through the reading's own unit."""
    predictions, cases = stream(100, seed=1)
    sd = deviations(cases)
    report = collected(predictions)
    assert report["deviation"] == pytest.approx(sd, rel=1e-9)
    assert report["overall"] == pytest.approx(expected(cases, sd), rel=1e-6)
    for agent in ("p", "q", "r"):
        of_agent = [c for c in cases if c.agent == agent]
        assert report["agents"][agent] == pytest.approx(expected(of_agent, sd), rel=1e-6)
        for name in FORWARD:
            found = {k: v for k, v in report["by_agent_channel"][agent][name].items() if k != "original"}
            assert found == pytest.approx(expected([c for c in of_agent if c.channel == name], sd), rel=1e-6)
    for name in FORWARD:
        found = {k: v for k, v in report["channels"][name].items() if k != "original"}
        assert found == pytest.approx(expected([c for c in cases if c.channel == name], sd), rel=1e-6)


def test_blocks_do_not_show_in_figures() -> None:
    """More frames than two blocks hold, in three pieces that are reported in between, give what one loop gives."""
    predictions, cases = stream(2 * BLOCK + 17, seed=2)
    accuracy = Accuracy(SCHEMA)
    for k, prediction in enumerate(predictions):
        accuracy.add(prediction)
        if k in (3, BLOCK + 5):
            accuracy.report()
    found = accuracy.report()["overall"]
    sd = deviations(cases)
    errors = [(FORWARD[c.channel](c.seen) - c.location) / sd[c.channel] for c in cases]
    steps = [(FORWARD[c.channel](c.seen) - FORWARD[c.channel](c.before)) / sd[c.channel] for c in cases]
    laws = [
        (c, scipy.stats.t.logpdf(FORWARD[c.channel](c.seen), c.degrees, c.location, c.scale)) for c in cases if c.scale
    ]
    assert found["n"] == len(cases)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-9)
    assert found["rmse_persistence"] == pytest.approx(np.sqrt(np.mean(np.square(steps))), rel=1e-9)
    assert found["nll"] == pytest.approx(np.mean([-logpdf - math.log(sd[c.channel]) for c, logpdf in laws]), rel=1e-9)


def test_errors_in_own_units() -> None:
    """Of the published mean; the score of a law in logarithms is left out there, with the reason."""
    predictions, cases = stream(100, seed=3)
    report = collected(predictions)
    for table, chosen in (
        (report["channels"], cases),
        (report["by_agent_channel"]["q"], [c for c in cases if c.agent == "q"]),
    ):
        for name, unit in (("a", "K"), ("dust", "ug")):
            own = table[name]["original"]
            of_channel = [c for c in chosen if c.channel == name]
            errors = np.array([c.seen - BACKWARD[name](c.location) for c in of_channel])
            assert own["unit"] == unit
            assert own["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-9)
            assert own["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-9)
            assert own["rmse_persistence"] == pytest.approx(
                np.sqrt(np.mean([(c.seen - c.before) ** 2 for c in of_channel])), rel=1e-9
            )
        told = [c for c in chosen if c.channel == "a" and c.scale]
        assert table["a"]["original"]["crps"] == pytest.approx(np.mean([crps(c) for c in told]), rel=1e-6)
        assert "crps_left_out" not in table["a"]["original"]
        assert table["dust"]["original"]["crps"] is None
        assert "infinite" in table["dust"]["original"]["crps_left_out"]


def test_the_score_in_own_units_is_indeed_infinite_for_logarithms() -> None:
    """Why it is left out: its integral grows on, stretch after stretch of x: e^100, e^300, e^500."""
    for degrees in (3, 30):

        def above(t: float, v: int = degrees) -> float:  # x = e^t: (1 - F)^2 dx
            return float(np.exp(t + 2 * scipy.stats.t.logsf(t, v)))

        parts = [scipy.integrate.quad(above, 100.0 * k, 100.0 * k + 100)[0] for k in (1, 3, 5)]
        assert parts[0] < parts[1] < parts[2]


def test_given_deviations_scale_instead_of_those_collected() -> None:
    predictions, cases = stream(50, seed=4)
    sd = {"a": 2.5, "dust": 0.3}
    report = collected(predictions, deviation=np.array([2.5, 0.3]))
    assert report["deviation"] == sd
    assert report["overall"] == pytest.approx(expected(cases, sd), rel=1e-6)


@pytest.mark.parametrize("wrong", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [[1.0, 1.0]]])
def test_deviations_that_cannot_scale_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="one a channel"):
        Accuracy(SCHEMA, deviation=np.array(wrong))


def lone(at_ms: int, error: float, agent: str = "p") -> Prediction:
    law = ChannelPrediction(mean=0.0, low=-1.0, high=1.0, observed=error, scale=1.0, degrees=4.0)
    return Prediction(at_ms=at_ms, agent=agent, sequence=0, channels={"a": law}, score=0.0, threshold=8.0)


def test_first_days_end_where_they_say() -> None:
    """A frame exactly three days on is in the first seven and not in the first three; likewise the others' ends."""
    join = 1_000_000
    days = [0, 1, 3 - 1e-8, 3, 7 - 1e-8, 7, 30 - 1e-8, 30, 50]
    errors = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
    frames = [lone(join + round(day * DAY_MS), error) for day, error in zip(days, errors, strict=True)]
    report = collected([lone(0, 5.0, "q"), *frames, lone(join + 1, 5.0, "q")], joins={"p": join}, deviation=np.ones(2))
    for length, count in ((3, 2), (7, 4), (30, 6)):
        found = report["joiners"]["p"][f"first_{length}_days"]
        assert found["n"] == count  # the very first reading has nothing before it
        assert found["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors[1 : count + 1]))))
        law = scipy.stats.t(4)
        assert found["nll"] == pytest.approx(-np.mean(law.logpdf(errors[1 : count + 1])))
        # the reading before the first of a stretch is the last of the one before
        assert found["rmse_persistence"] == pytest.approx(np.sqrt(np.mean(np.diff(errors[: count + 1]) ** 2)))
    assert report["agents"]["p"]["n"] == len(days) - 1
    assert list(report["joiners"]) == ["p"]


def test_frames_before_the_join_are_in_no_first_days() -> None:
    report = collected([lone(0, 1.0), lone(5, 1.0), lone(10, 1.0)], joins={"p": 10})
    assert report["joiners"]["p"]["first_30_days"]["n"] == 1
    assert report["agents"]["p"]["n"] == 2


def test_a_joiner_that_never_came_has_no_figures() -> None:
    found = collected([lone(0, 1.0)], joins={"ghost": 0})["joiners"]["ghost"]
    assert list(found) == ["first_3_days", "first_7_days", "first_30_days"]
    assert all(value in (0, None) for figures in found.values() for value in figures.values())


def test_a_constant_channel_is_scored_in_its_own_unit() -> None:
    predictions = [
        Prediction(
            at_ms=k,
            agent="p",
            sequence=k,
            channels={"a": ChannelPrediction(mean=5.5, low=5, high=6, observed=5.0, scale=0.25, degrees=4.0)},
            score=0.0,
            threshold=8.0,
        )
        for k in range(4)
    ]
    found = collected(predictions)["channels"]["a"]
    assert found["nll"] == pytest.approx(-scipy.stats.t.logpdf(5.0, 4, 5.5, 0.25))
    assert found["crps"] == pytest.approx(found["original"]["crps"])
    assert (found["coverage50"], found["coverage95"]) == (
        0.0,
        1.0,
    )  # 2 scales off: t(4) has 2.13 and 2.78 at 90 and 95 %


@pytest.mark.parametrize("law", [(0.0, 4.0), (1.0, 0.0), (1.0, 1.0), (1.0, 2.5), (1.0, math.inf), (-1.0, 4.0)])
def test_a_law_that_was_not_told_counts_for_errors_only(law: tuple[float, float]) -> None:
    accuracy = Accuracy(SCHEMA)
    frame = np.full((2, 6), math.nan)
    for seen in (0.0, 1.0, 2.0):
        frame[0] = (0.5, 0.0, 1.0, seen, *law)
        accuracy.add_frame("p", frame)
    found = accuracy.report()["overall"]
    assert (found["n"], found["n_law"]) == (2, 0)
    assert found["rmse"] is not None
    assert [found[name] for name in ("nll", "crps", "coverage50", "coverage80", "coverage95")] == [None] * 5


@pytest.mark.filterwarnings("error")
def test_absurd_numbers_leave_finite_figures() -> None:
    """What may travel: the largest doubles, a scale far below its error, a mean in logarithms that rounds to -1."""
    accuracy = Accuracy(SCHEMA)
    for k in range(3):
        sign = (-1) ** k
        accuracy.add_frame(
            "p", np.array([[-sign * 1e308, 0, 1, sign * 1e308, 1e-300, 4], [-1.0, -1.0, 0.0, k, 1e-3, 3]])
        )
    report = accuracy.report()
    flat = [*report["overall"].values(), *report["channels"]["a"].values(), *report["channels"]["dust"].values()]
    assert all(math.isfinite(value) for value in flat if isinstance(value, int | float))
    assert report["overall"]["n_law"] == 4
