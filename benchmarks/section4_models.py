"""The models of section 4 behind one signature: fit on six devices, foresee their tests, tell what it took.

All start from the paper's values (lengthscales 2 and 0.35, noise that of the simulator, 25 inducing inputs a basis on a grid,
all learnable), under the same weak priors, with 20 rounds and the same evaluations a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks import section4_data as data
from benchmarks.section4_data import Device, Scenario
from fleetgp.arrays import Array
from fleetgp.gp import fleet, hierarchy
from fleetgp.gp.client import EVALUATIONS, Client
from fleetgp.gp.fleet import ROUNDS, Fleet
from fleetgp.gp.hierarchy import Ranks, Start
from fleetgp.gp.mixing import Mixing

INDUCING = 25
FEDERATED = {
    "full": Ranks(2, 2, 2),
    "no-deviation": Ranks(2, 0, 2),
    "no-local": Ranks(2, 2, 0),
    "global-only": Ranks(2, 0, 0),
}
LONE = {"local-only": Ranks(0, 0, 2), "alone": Ranks(0, 2, 2)}
ABLATIONS = ("no-deviation", "no-local", "global-only", "local-only")
MODELS = (*FEDERATED, *LONE, "pfedgp", "algorithm1", "oracle")

# one device by itself: ours, gpytorch's, and for comparison ours with the fleet, which has six times the data
OURS, FLEET, PEERS = "ours", "fleet", ("svgp", "lmc")
ON_ONE = (OURS, FLEET, *PEERS)


class Fit(NamedTuple):
    """laws: mean [200, Q] and covariance [200, Q, Q] of each device's tests; covariances [Q, Q]: of each signal, as found."""

    laws: list[tuple[Array, Array]]
    covariances: list[Array]
    seconds: float
    cpu_seconds: float
    rounds: int
    bytes_a_round: float
    ms_per_step: float = float("nan")


Fitter = Callable[[list[Device], int], Fit]


def fit(model: str, devices: list[Device], scenario: Scenario, seed: int) -> Fit:
    """One model on one run's devices."""
    if model == "oracle":
        begin = _clocks()
        laws = data.oracle(devices, scenario)
        return Fit(laws, [d.covariance for d in devices], *_since(begin), 0, 0.0)
    if model == "algorithm1":
        return algorithm1(devices, seed)
    if model == "pfedgp":
        return pfedgp(devices, seed)
    return structured(model, devices, seed)


def fit_one(model: str, devices: list[Device], seed: int) -> Fit:
    """One of ON_ONE, judged on the first device. Of a peer ``rounds`` are steps."""
    if model == FLEET:
        fitted = structured("full", devices, seed)
        return fitted._replace(laws=fitted.laws[:1], covariances=fitted.covariances[:1])
    if model == OURS:
        return structured("alone", devices[:1], seed)
    from benchmarks import section4_peers

    begin = _clocks()
    law, covariance, steps = section4_peers.fit(model, devices[0], seed)
    return Fit([law], [covariance], *_since(begin), steps, 0.0)


def start() -> Start:
    """The paper's first values."""
    grid = np.linspace(0, data.SPAN, INDUCING)[:, None]
    lengths = np.array([data.LENGTH_G]), np.array([data.LENGTH_I])
    return Start(grid, grid, *lengths, np.full(data.Q, data.NOISE_SD**2), data.PHI)


def structured(model: str, devices: list[Device], seed: int) -> Fit:
    """Ours, whole or with layers left out; without a shared layer every device learns by itself."""
    begin, first, rng = _clocks(), start(), np.random.default_rng(seed)
    ranks = FEDERATED.get(model) or LONE[model]
    shared = hierarchy.shared(first, ranks, rng)
    clients = {
        f"{i:02d}": Client(d.X[:, None], d.Y, hierarchy.own(first, ranks, rng), first) for i, d in enumerate(devices)
    }
    if model in FEDERATED:
        learnt = fleet.learn(clients, shared, first, ROUNDS)
        return _told([learnt] * len(devices), devices, begin, 8 * learnt.numbers)
    return _told([fleet.learn({name: one}, shared, first, ROUNDS) for name, one in clients.items()], devices, begin, 0)


def pfedgp(devices: list[Device], seed: int) -> Fit:
    """A personal multi-output block each, of full rank; the kernel's lengthscale is averaged over devices after every round."""
    begin, first, rng = _clocks(), start(), np.random.default_rng(seed)
    ranks = Ranks(0, 0, data.Q)
    shared = hierarchy.shared(first, ranks, rng)
    clients = {
        f"{i:02d}": Client(d.X[:, None], d.Y, hierarchy.own(first, ranks, rng), first) for i, d in enumerate(devices)
    }
    weights = np.array([len(d.X) for d in devices], dtype=float)
    for _ in range(ROUNDS - 1):
        for one in clients.values():
            fleet.learn({"": one}, shared, first, rounds=1, evaluations=EVALUATIONS)
        lengths = np.array([one.own.log_lengthscale for one in clients.values()])
        average = weights @ lengths / weights.sum()
        for one in clients.values():
            one.own = one.own._replace(log_lengthscale=average)
    # the averaged lengthscale stands; a device fits the rest once more by leaving it where it is
    told = [fleet.learn({name: one}, shared, first, rounds=1, evaluations=1) for name, one in clients.items()]
    return _told(told, devices, begin, 8)


def algorithm1(devices: list[Device], seed: int) -> Fit:
    """The paper's own: 20 rounds of 80 local Adam steps. The only one that needs torch."""
    from fleetgp.gp import meanfield

    begin, first, rng = _clocks(), start(), np.random.default_rng(seed)
    ranks = FEDERATED["full"]
    shared = hierarchy.shared(first, ranks, rng)
    clients = [meanfield.Client(d.X[:, None], d.Y, hierarchy.own(first, ranks, rng), shared) for d in devices]
    server = meanfield.Server(shared)
    for _ in range(meanfield.ROUNDS):
        server.step([one.answer(server.world)[0] for one in clients])
    laws, covariances = [], []
    for one, device in zip(clients, devices, strict=True):
        laws.append(tuple(meanfield.predict(server.world, one.private, device.Xs[:, None])))
        covariances.append(_signal(hierarchy.mixing(*meanfield.hyperparameters(server.world, one.private))))
    seconds, cpu = _since(begin)
    steps = meanfield.ROUNDS * meanfield.STEPS * len(devices)
    sent = 8 * sum(value.numel() for value in server.world)
    return Fit(laws, covariances, seconds, cpu, meanfield.ROUNDS, sent, 1000 * seconds / steps)


def _told(learnt: list[Fleet], devices: list[Device], begin: tuple[float, float], sent: float) -> Fit:
    laws, covariances = [], []
    for i, (one, device) in enumerate(zip(learnt, devices, strict=True)):
        name = f"{i:02d}"
        laws.append(tuple(one.law(name, device.Xs[:, None])))
        covariances.append(_signal(one.clients[name].mixing(one.shared)))
    return Fit(laws, covariances, *_since(begin), ROUNDS, sent)


def _signal(mix: Mixing) -> Array:
    return np.asarray(mix.Bg @ mix.Bg.T + mix.phi * mix.Bd @ mix.Bd.T + mix.Bl @ mix.Bl.T)


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(begin: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - begin[0], time.process_time() - begin[1]
