"""The shared values of mixed channels that a tuning steps in: loadings, the log of one lengthscale, the log of phi."""

from __future__ import annotations

import msgspec
import numpy as np

from coordinator import basis, intake
from coordinator.state import Answer, State
from fleetgp.arrays import Array
from fleetgp.gp import message, mixed_solve, position
from fleetgp.gp.hierarchy import Shared
from fleetgp.wire import mixed_proposal
from fleetgp.wire.mixed_proposal import LOADINGS, LOG_LENGTHSCALE, LOG_PHI

# of an agent, in its ring: of those that are far enough apart enough remain
LEAST_FRAMES = 240
LENGTHSCALE_SD, PHI_SD = 0.5, 1.0
MOST_LOADING = 20.0
# no deviation, and one far larger than what is shared
LEAST_LOG_PHI, MOST_LOG_PHI = -12.0, 4.0


def is_of(values: dict[str, Array]) -> bool:
    """Whether values are of mixed channels."""
    return LOADINGS in values


def live(state: State) -> Shared:
    assert state.mixture is not None
    return state.mixture


def start(state: State) -> dict[str, Array]:
    return mixed_proposal.values(live(state))


def log_prior(values: dict[str, Array], middle: dict[str, Array]) -> tuple[float, dict[str, Array]]:
    """Log prior density up to a constant, and its slope: loadings N(0, 1 / R), logarithms about where they began."""
    B = values[LOADINGS]
    length, phi = (values[name] - middle[name] for name in (LOG_LENGTHSCALE, LOG_PHI))
    value = -0.5 * (B.shape[1] * float(np.sum(B**2)) + float(length[0] ** 2) / LENGTHSCALE_SD**2)
    value -= 0.5 * float(phi) ** 2 / PHI_SD**2
    slope = {LOADINGS: -B.shape[1] * B, LOG_LENGTHSCALE: -length / LENGTHSCALE_SD**2, LOG_PHI: -phi / PHI_SD**2}
    return value, {name: np.asarray(one) for name, one in slope.items()}


def bounded(values: dict[str, Array]) -> dict[str, Array]:
    """Values held where they make sense."""
    return {
        LOADINGS: np.clip(values[LOADINGS], -MOST_LOADING, MOST_LOADING),
        LOG_LENGTHSCALE: values[LOG_LENGTHSCALE],
        LOG_PHI: np.asarray(np.clip(values[LOG_PHI], LEAST_LOG_PHI, MOST_LOG_PHI)),
    }


def tuned(state: State, values: dict[str, Array], loss: float) -> State:
    """The state on values that were learnt; loss: of the way there, in shares of the noise.

    No term is projected twice, as in ``basis``: what an agent that missed the basis between takes out would not be inside.
    """
    assert state.schema is not None
    old = live(state)
    new = mixed_proposal.shared(values, old)
    T = mixed_solve.change(old, new, state.schema.kernel)
    answers: dict[str, Answer] = {}
    for name, answer in state.answers.items():
        if answer.kept < 1.0:
            continue
        with np.errstate(over="ignore", invalid="ignore"):  # is_usable looks at what came of it
            term = message.rebase(answer.term, T, np.ones(1))
        if intake.is_usable(term, answer.noise_var):
            answers[name] = msgspec.structs.replace(answer, term=term, kept=basis.kept(loss))
    return msgspec.structs.replace(state, basis=state.basis + 1, mixture=new, answers=answers)


def columns(state: State) -> tuple[int, ...]:
    assert state.schema is not None
    return position.plan(state.schema, 0).columns


def size(state: State) -> tuple[int, int]:
    """How many rows, 1, and how many shared weights."""
    shared = live(state)
    return 1, shared.Bg.shape[1] * len(shared.Zg)
