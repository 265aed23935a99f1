"""What the fleet knows: the exact posterior of the shared weights from all terms, aged, as a message."""

from __future__ import annotations

import numpy as np

from coordinator.state import Answer, State
from fleetgp import features
from fleetgp.arrays import Array
from fleetgp.gp import aggregate, hyper, message
from fleetgp.gp.aggregate import Belief
from fleetgp.wire import knowledge
from fleetgp.wire.knowledge import Published, Stamp
from fleetgp.wire.messages import FleetModel, Included

# of the weight of what was told: below it is let go
FORGOTTEN = 1e-3


def fading(state: State, since_round: int) -> float:
    """1 for what came in this round, half for what came half_life_rounds ago."""
    return float(0.5 ** ((state.round - since_round) / state.config.half_life_rounds))


def is_faded(state: State, since_round: int) -> bool:
    """Whether what came in this round is let go by now."""
    return fading(state, since_round) < FORGOTTEN


def frames(state: State) -> list[float]:
    """Frames behind the term of each agent, on average over channels."""
    return [float(np.mean(answer.count)) for answer in state.answers.values()]


def factor(state: State, answer: Answer) -> float:
    """Weight of a term: 1 when it answered this round, half after half_life_rounds without a new one, less by what lossy
    changes of basis have left of it."""
    return fading(state, answer.round) * answer.kept


def blocks(state: State) -> Array:
    """Block of every shared feature [F]."""
    assert state.feature_map is not None
    shape = state.feature_map.shape
    return features.blocks(shape, state.feature_map.size - shape.linear)


def variances(state: State) -> tuple[Array, Array]:
    """Prior variances [Q, F] of the shared weights and of an agent's deviation."""
    assert state.scales is not None
    of = blocks(state)
    return hyper.by_feature(state.scales.shared, of), hyper.by_feature(state.scales.deviation, of)


def belief(state: State) -> Belief:
    """Posterior of the shared weights."""
    return posterior(state, variances(state)[0])


def posterior(state: State, prior_var: Array) -> Belief:
    """Posterior from the terms as they are weighed by now, of weights with these prior variances [Q, F]; agents in order of their
    names, so that the bits are always the same."""
    answers = [state.answers[name] for name in sorted(state.answers)]
    return aggregate.posterior((message.scaled(a.term, factor(state, a)) for a in answers), prior_var)


def included(state: State) -> dict[str, Included]:
    """Whose terms the posterior holds, and at what weight."""
    return {
        name: Included(incarnation=a.incarnation, sequence=a.sequence, factor=factor(state, a))
        for name, a in sorted(state.answers.items())
    }


def noise(state: State) -> tuple[Array, float]:
    """Noise variance [Q] typical of the fleet and the frames it was learnt from; 1 of no frames where nobody answered."""
    assert state.schema is not None
    answers = [state.answers[name] for name in sorted(state.answers)]
    if not answers:
        return np.ones(len(state.schema.channels)), 0.0
    counts = np.array([factor(state, a) * a.count for a in answers])
    return aggregate.pooled_noise(np.array([a.noise_var for a in answers]), counts), float(
        np.sum(np.mean(counts, axis=1))
    )


def model(state: State, at_ms: int) -> FleetModel:
    """What is published: belief and prior variances belong together, whatever EM does next."""
    assert state.schema is not None
    assert state.feature_map is not None
    prior_var, deviation_var = variances(state)
    centres = state.centres.place if state.centres is not None else None
    known = Published(state.feature_map, belief(state), prior_var, deviation_var, *noise(state), centres)
    stamp = Stamp(at_ms, state.round, state.origin, state.basis)
    return knowledge.write(known, state.schema, stamp, included(state))
