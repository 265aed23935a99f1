"""What hyperparameters are learnt from: a client's evidence against the fleet's, its gradients against finite differences."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.covariances import Periodic, Stationary
from fleetgp.errors import NotFinite
from fleetgp.gp import aggregate, hierarchy, mixing, slopes, tune
from fleetgp.gp.climb import Curvature, climb
from fleetgp.gp.hierarchy import AnyKernel, Own, Ranks, Shared, Start
from fleetgp.gp.mixing import Message
from fleetgp.schema import Kernel

KERNELS: tuple[Kernel, ...] = get_args(Kernel)
# with variances of their own, and another kernel of what is local
WAVE = Periodic(0, period=3.1, lengthscale=1.2, variance=0.6) * Stationary("matern52", (0,), np.array([6.0])) + (
    Stationary("se", (0,), np.array([2.0]), 0.7)
)
ROUGH = Stationary("matern32", (0,), np.array([0.9]), 0.5) + Periodic(0, 1.7, 0.8, 0.3)
PAIRS = [
    *((k, None, 0.0) for k in KERNELS),
    ("se", None, 0.3),
    (WAVE, ROUGH, 0.0),
    (WAVE, "se", 0.3),
    ("se", ROUGH, 0.3),
]
RANKS = [Ranks(2, 2, 2), Ranks(2, 0, 1), Ranks(1, 2, 0), Ranks(2, 0, 0), Ranks(0, 0, 2), Ranks(0, 1, 2), Ranks(4, 1, 1)]


def start(kernel: AnyKernel = "se", local: AnyKernel | None = None) -> Start:
    Zg, Zi = np.linspace(0, 10, 6)[:, None], np.linspace(0, 10, 7)[:, None]
    lengths = parameters(kernel, 2.0), parameters(local or kernel, 0.9)
    return Start(Zg, Zi, *lengths, np.full(3, 0.05), kernel=kernel, local_kernel=local)


def parameters(kernel: AnyKernel, lengthscale: float) -> Array:
    return np.array([lengthscale]) if isinstance(kernel, str) else np.exp(kernel.values)


class Case:
    """Three clients of a few frames, their hyperparameters and messages."""

    def __init__(
        self,
        ranks: Ranks,
        kernel: AnyKernel = "se",
        missing: float = 0.0,
        frames: int = 9,
        local: AnyKernel | None = None,
    ) -> None:
        rng = np.random.default_rng(7)
        self.start = start(kernel, local)
        self.shared = hierarchy.shared(self.start, ranks, rng)
        self.own = [hierarchy.own(self.start, ranks, rng) for _ in range(3)]
        self.X = [rng.uniform(0, 10, (frames, 1)) for _ in range(3)]
        self.Y = [rng.standard_normal((frames, 3)) for _ in range(3)]
        for Y in self.Y:
            Y[rng.random(Y.shape) < missing] = np.nan

    def message(self, client: int, shared: Shared, own: Own) -> Message:
        mix = hierarchy.mixing(shared, own, *self.start.kernels)
        return mixing.summarise(mix, mixing.summed(mix, self.X[client], self.Y[client]))

    def evidence(self, shared: Shared, owns: list[Own], clients: tuple[int, ...] = (0, 1, 2)) -> float:
        """Of these clients' readings, by numpy."""
        messages = [self.message(i, shared, owns[i]) for i in clients]
        return mixing.evidence(messages, mixing.posterior(messages, shared.Bg.shape[1] * len(shared.Zg)))

    def cavity(self, client: int) -> tune.Cavity:
        messages = [self.message(i, self.shared, self.own[i]) for i in range(3)]
        belief = mixing.posterior(messages, self.shared.Bg.shape[1] * len(self.shared.Zg))
        return tune.cavity(aggregate.cavity(belief, messages[client].term))


def differences(function: object, value: Array, step: float = 1e-5) -> Array:
    """Central differences of a function of an array, entry by entry."""
    result = np.zeros(value.shape)
    for index in np.ndindex(value.shape):
        up, down = np.array(value), np.array(value)
        up[index] += step
        down[index] -= step
        result[index] = (function(up) - function(down)) / (2 * step)  # type: ignore[operator]
    return result


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("ranks", RANKS)
def test_a_clients_evidence_is_the_fleets_less_that_of_the_others_1e_7(ranks: Ranks, missing: float) -> None:
    """numpy's collapsed bound from messages, with and without the client; ranks 0 and above the number of channels."""
    case = Case(ranks, missing=missing)
    told, _ = tune.gradient(case.shared, case.own[1], slopes.frames(case.X[1], case.Y[1]), case.cavity(1))
    others = case.evidence(case.shared, case.own, (0, 2))
    assert told == pytest.approx(case.evidence(case.shared, case.own) - others, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize(("kernel", "local", "missing"), PAIRS)
def test_a_clients_own_gradient_is_the_finite_difference_of_the_whole_fleets_bound_1e_5(
    kernel: AnyKernel, local: AnyKernel | None, missing: float
) -> None:
    """Of everything it keeps, its priors included: what it climbs is the fleet's bound up to a constant."""
    case = Case(Ranks(2, 2, 2), kernel, missing, local=local)
    climbed = tune.OwnEvidence(
        case.shared, case.own[1], slopes.frames(case.X[1], case.Y[1]), case.cavity(1), case.start
    )
    flat = tune.packed(case.own[1])

    def fleet(place: Array) -> float:
        own = tune.unpacked(place, case.own[1])
        owns = [case.own[0], own, case.own[2]]
        return case.evidence(case.shared, owns) + hierarchy.own_log_prior(own, case.start)[0]

    np.testing.assert_allclose(climbed(flat)[1], differences(fleet, flat), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("kernel", "local", "missing"), PAIRS)
def test_gradients_of_all_clients_sum_to_the_finite_difference_of_the_bound_1e_5(
    kernel: AnyKernel, local: AnyKernel | None, missing: float
) -> None:
    """For loadings, inducing inputs, the kernel's parameters and phi: each client knows but its own part (models.md section 4)."""
    case = Case(Ranks(2, 2, 2), kernel, missing, local=local)
    told = [
        tune.gradient(
            case.shared, case.own[i], slopes.frames(case.X[i], case.Y[i]), case.cavity(i), *case.start.kernels
        )[1]
        for i in range(3)
    ]
    for name, value in case.shared._asdict().items():
        expected = differences(lambda v, name=name: case.evidence(case.shared._replace(**{name: v}), case.own), value)
        summed = sum((getattr(one, name) for one in told), np.zeros_like(value))
        np.testing.assert_allclose(summed, expected, rtol=1e-5, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("ranks", RANKS)
def test_priors_gradients_are_finite_differences(ranks: Ranks) -> None:
    case, rng = Case(ranks), np.random.default_rng(1)
    shared = Shared(*(v + 0.3 * rng.standard_normal(v.shape) for v in case.shared))
    own = Own(*(v + 0.3 * rng.standard_normal(v.shape) for v in case.own[0]))
    for name, value in shared._asdict().items():
        by_hand = differences(
            lambda v, name=name: hierarchy.shared_log_prior(shared._replace(**{name: v}), case.start)[0], value
        )
        np.testing.assert_allclose(getattr(hierarchy.shared_log_prior(shared, case.start)[1], name), by_hand, atol=1e-7)
    for name, value in own._asdict().items():
        by_hand = differences(
            lambda v, name=name: hierarchy.own_log_prior(own._replace(**{name: v}), case.start)[0], value
        )
        np.testing.assert_allclose(getattr(hierarchy.own_log_prior(own, case.start)[1], name), by_hand, atol=1e-7)


def test_no_climb_ends_below_where_it_began_and_it_finds_the_top_of_a_hill() -> None:
    """A quadratic whose curvatures span five powers of ten, to 1e-4 of its height in 120 evaluations."""
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    A = turn @ np.diag(10 ** np.linspace(-2, 3, 12)) @ turn.T
    top = rng.standard_normal(12)
    heights: list[float] = []
    x, curvature = np.zeros(12), Curvature()
    for _ in range(15):
        x, height = climb(lambda p: (-0.5 * (p - top) @ A @ (p - top), -A @ (p - top)), x, curvature, 8)
        heights.append(height)
    assert heights == sorted(heights)
    assert heights[-1] > -1e-4 * top @ A @ top


def test_a_climb_keeps_out_of_where_there_is_no_number_and_refuses_to_begin_there() -> None:
    def cliff(p: Array) -> tuple[float, Array]:
        return (float("nan"), np.full(1, np.nan)) if p[0] >= 1.0 else (float(p[0]), np.ones(1))

    x, height = climb(cliff, np.array([0.95]), Curvature(), 20)
    assert 0.95 < x[0] < 1.0
    assert height == x[0]
    with pytest.raises(NotFinite, match="where the climb begins"):
        climb(cliff, np.array([2.0]), Curvature(), 20)
