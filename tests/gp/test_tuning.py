"""The server's side of learning: Adam against torch's, steps taken back, clients refused by name, and whole fits."""

from __future__ import annotations

import numpy as np
import pytest

from fleetgp.arrays import Array
from fleetgp.gp import hierarchy, mixing, tuning
from fleetgp.gp.client import Client
from fleetgp.gp.hierarchy import Ranks, Shared, Start
from fleetgp.gp.message import Term
from fleetgp.gp.mixing import Message
from fleetgp.gp.tuning import Answer, Server

START = Start(
    np.linspace(0, 10, 8)[:, None], np.linspace(0, 10, 8)[:, None], np.array([2.0]), np.array([0.8]), np.full(2, 0.01)
)
NO_TORCH = "no torch here: pip install -c constraints.txt -e '.[learn]'"


def shared(seed: int = 0) -> Shared:
    return hierarchy.shared(START, Ranks(1, 1, 1), np.random.default_rng(seed))


def answer(constant: float, slope: float = 1.0, log_prior: float = 0.0) -> Answer:
    """A client without readings whose evidence is a number of our choice."""
    nothing = Term(np.zeros((1, 8, 8)), np.zeros((1, 8)))
    return Answer(Message(nothing, constant), Shared(*(np.full(v.shape, slope) for v in shared())), log_prior)


ONE_EACH = Ranks(1, 1, 1)


def clients(ranks: Ranks = ONE_EACH, seed: int = 0, frames: int = 25) -> tuple[Server, dict[str, Client]]:
    """Three clients with a common sine and slopes of their own."""
    rng = np.random.default_rng(seed)
    server = tuning.init(hierarchy.shared(START, ranks, rng))
    fleet = {}
    for i in range(3):
        X = rng.uniform(0, 10, (frames, 1))
        Y = np.sin(X) * np.array([1.0, -0.7]) + 0.05 * (i - 1) * X + 0.1 * rng.standard_normal((frames, 2))
        fleet[f"client {i}"] = Client(X, Y, hierarchy.own(START, ranks, rng), START)
    return server, fleet


def play(server: Server, fleet: dict[str, Client], rounds: int) -> tuple[Server, list[float], int]:
    """Server, scores of the rounds that stand, and how many were taken back."""
    scores, back = [], 0
    for _ in range(rounds):
        answers = {n: c.answer(server.shared, server.belief, is_back=server.is_back) for n, c in fleet.items()}
        server, told = tuning.step(server, answers, START)
        back += told.is_taken_back
        if not told.is_taken_back:
            scores.append(told.score)
    return server, scores, back


def test_without_anything_taken_back_the_steps_are_torchs_adam() -> None:
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    server = tuning.init(shared())
    tensors = [torch.tensor(v, requires_grad=True) for v in server.shared]
    adam, rate = torch.optim.Adam(tensors, lr=1.0), tuning.RATE
    for turn in range(4):
        rate *= tuning.DECAY
        _, prior = hierarchy.shared_log_prior(server.shared, START)
        for group in adam.param_groups:
            group["lr"] = rate
        for tensor, slope in zip(tensors, prior, strict=True):
            tensor.grad = -torch.as_tensor(2 * (turn - 1.5) + slope)
        adam.step()
        server, told = tuning.step(server, {"a": answer(100.0 * turn, turn - 1.5), "b": answer(0.0, turn - 1.5)}, START)
        assert not told.is_taken_back
    for mine, theirs in zip(server.shared, tensors, strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_a_step_after_which_the_evidence_is_lower_is_taken_back_and_made_again_half_as_long() -> None:
    first, _ = tuning.step(tuning.init(shared()), {"a": answer(10.0)}, START)
    worse, told = tuning.step(first, {"a": answer(-1000.0, slope=7.0)}, START)
    assert told.is_taken_back
    assert worse.is_back
    assert worse.best is not None
    np.testing.assert_array_equal(worse.best.shared.Bg, shared().Bg)
    whole, half = (
        first.shared.log_lengthscale - shared().log_lengthscale,
        worse.shared.log_lengthscale - shared().log_lengthscale,
    )
    np.testing.assert_allclose(half, tuning.BACK * whole, rtol=1e-6)
    better, told = tuning.step(worse, {"a": answer(2000.0)}, START)
    assert not told.is_taken_back
    assert better.best is not None
    assert better.best.score == told.score


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_no_number_is_refused_by_name_and_the_others_count(bad: float) -> None:
    server = tuning.init(shared())
    good, _ = tuning.step(server, {"a": answer(1.0)}, START)
    mixed, told = tuning.step(server, {"a": answer(1.0), "b": answer(1.0, slope=bad)}, START)
    assert told.refused == {"b": "gradient is not finite"}
    np.testing.assert_array_equal(mixed.shared.Bg, good.shared.Bg)
    _, told = tuning.step(server, {"a": answer(bad)}, START)
    assert told.refused == {"a": "message is not finite"}


@pytest.mark.parametrize(
    "ranks", [Ranks(1, 1, 1), Ranks(1, 0, 1), Ranks(1, 1, 0), Ranks(1, 0, 0), Ranks(0, 0, 2), Ranks(0, 1, 1)]
)
def test_a_fleet_learns_from_round_to_round(ranks: Ranks) -> None:
    """Scores of rounds that stand only rise; what is learnt foresees new inputs far better than the first values did."""
    server, fleet = clients(ranks)
    server, scores, back = play(server, fleet, 12)
    assert scores == sorted(scores)
    assert scores[-1] > scores[0] + 5
    assert back < 6
    if server.is_back:
        for one in fleet.values():
            one.go_back()
    assert server.best is not None
    assert _error(fleet, server) < 0.25


def _error(fleet: dict[str, Client], server: Server) -> float:
    x = np.linspace(0.5, 9.5, 40)[:, None]
    errors: list[Array] = []
    assert server.best is not None
    for i, one in enumerate(fleet.values()):
        law = mixing.predict(one.mixing(server.best.shared), one.posterior(server.best.shared, server.best.belief), x)
        errors.append(law.mean - (np.sin(x) * np.array([1.0, -0.7]) + 0.05 * (i - 1) * x))
    return float(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize("frames", [0, 1])
def test_clients_with_no_frame_or_one_take_part(frames: int) -> None:
    server, fleet = clients(frames=frames)
    server, scores, _ = play(server, fleet, 3)
    assert np.all(np.isfinite(scores))
    assert all(np.all(np.isfinite(part)) for part in server.shared)


def test_what_travels_is_half_a_precision_a_shift_and_the_gradient() -> None:
    server, fleet = clients()
    told = fleet["client 0"].answer(server.shared, server.belief, is_back=False)
    # 8 shared weights; Bg [2, 1], Zg [8, 1], a lengthscale, phi; the constant and the log prior
    assert told.numbers == 36 + 8 + (2 + 8 + 1 + 1) + 2
