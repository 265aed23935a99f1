"""Every model of ``fleetgp.models`` in the streaming engine against one dense joint Gaussian of that model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from dense_fleet import Joint, Priors, Stream, condition
from drive_learner import NEVER
from random_learner import random_basis, random_inputs, random_knowledge, random_readings

from fleetgp import features, scaling
from fleetgp.arrays import Array
from fleetgp.features import Shape
from fleetgp.gp import aggregate, hyper, moves, parts, posterior
from fleetgp.gp import learner as learning
from fleetgp.gp.learner import LONG, Forgetting, Learner
from fleetgp.gp.parts import Sizes
from fleetgp.models import MODELS, PARTS, WORDS, Model
from fleetgp.models import parts as parts_of

SHAPE = Shape(channels=2, lags=1, covariates=1)
SHARED = ("full", "no-deviation", "no-local", "global-only")
LONE = ("alone", "local-only", "pfedgp")
KEEPS = Forgetting(NEVER, NEVER, 10_000)
# a deviation of variance NO_DEVIATION is not quite none
NEARLY = {"rtol": 1e-5, "atol": 1e-6}
EXACT = {"rtol": 1e-8, "atol": 1e-8}


class Member(NamedTuple):
    """One agent that learnt its frames, and the same frames for the dense computation."""

    learner: Learner
    stream: Stream


def member(seed: int, model: Model, knowledge: learning.Knowledge, frames: int) -> Member:
    """With a local layer of its own where the model has one; on the basis that the knowledge is of."""
    rng, of_fleet = np.random.default_rng(seed), random_basis(np.random.default_rng(0), SHAPE, shared=3)
    own = random_basis(rng, SHAPE, local=2).local if parts_of(model).local else None
    learner = learning.knowing(of_fleet._replace(local=own), parts.known(knowledge, parts_of(model)))
    inputs = random_inputs(rng, SHAPE, frames)
    X = features.features(learner.basis, inputs.inputs)
    Y = (random_readings(rng, inputs) - inputs.last) / learner.unit
    k = rng.integers(1, 4, Y.shape).astype(float)
    stream = Stream(X, Y, k, learner.noise_var[LONG])
    sums = stream.statistics()
    past = learner.past._replace(**{name: np.stack((part, part)) for name, part in sums._asdict().items()})
    return Member(learner._replace(past=past, frames=frames), stream)


def dense(members: list[Member], model: Model, knowledge: learning.Knowledge, channel: int) -> Joint:
    """The joint Gaussian of a fleet of this model, with no deviation at all where it has none."""
    deviation = knowledge.deviation_var if parts_of(model).deviation else np.zeros_like(knowledge.deviation_var)
    learner = members[0].learner
    local = np.tile(learner.local_var[:, None], (1, learner.basis.local_size))
    return condition([one.stream for one in members], Priors(knowledge.prior_var, deviation, local), channel)


@pytest.mark.parametrize("model", SHARED)
def test_summary_cavity_and_prediction_are_those_of_the_dense_model(model: Model) -> None:
    """The fleet's weights, and each agent's own with everybody's data counted once, exactly as if all had been pooled."""
    basis = random_basis(np.random.default_rng(0), SHAPE, shared=3)
    knowledge = random_knowledge(np.random.default_rng(1), basis)
    knowledge = knowledge._replace(belief=aggregate.prior(knowledge.prior_var))
    members = [member(seed, model, knowledge, frames) for seed, frames in ((2, 30), (3, 12), (4, 0))]
    terms = [learning.summary(one.learner)[0] for one in members]
    belief = aggregate.posterior(terms, knowledge.prior_var)
    tolerance = EXACT if parts_of(model).deviation else NEARLY
    shared = posterior.unlearnt(posterior.prior(belief, np.zeros_like(belief.shift), np.zeros((2, 0))))
    for k, one in enumerate(members):
        cavity = knowledge._replace(belief=aggregate.cavity(belief, terms[k]))
        learner = learning.inform(one.learner, parts.known(cavity, parts_of(model)))
        own = posterior.posterior(learner.before, one.stream.statistics(), one.stream.noise_var)
        for q in range(2):
            joint = dense(members, model, knowledge, q)
            np.testing.assert_allclose(shared.mean[q], joint.shared()[0], **tolerance)
            np.testing.assert_allclose(shared.cov[q], joint.shared()[1], **tolerance)
            np.testing.assert_allclose(own.mean[q], joint.weights(k)[0], **tolerance)
            np.testing.assert_allclose(own.cov[q], joint.weights(k)[1], **tolerance)


def driven(model: Model, frames: int, wanted: Sizes) -> tuple[Learner, Array]:
    """A lone learner of a model after its first frames, of which none is forgotten; the layers it places itself last."""
    rng = np.random.default_rng(7)
    inputs = random_inputs(rng, SHAPE, frames)
    observed = random_readings(rng, inputs)
    moments = scaling.empty_moments(3)
    for row in inputs.inputs[:, :3]:
        moments = scaling.observe(moments, row)
    learner = parts.begun(moments, SHAPE, parts_of(model))
    for t in range(frames):
        forecast = learning.foresee(learner, learning.Inputs(*(part[t] for part in inputs)))
        learner = learning.learn(learner, forecast, observed[t], KEEPS)
    return parts.place(learner, wanted, "matern32"), (observed - inputs.last) / learner.unit


@pytest.mark.parametrize("model", [*LONE, "global-only"])
def test_a_lone_agents_weights_are_those_of_the_dense_model_of_its_own_frames(model: Model) -> None:
    """Alone has a copy of the fleet's inducing features, local-only has none; one shared weight vector is v + d there."""
    wanted = parts.sizes(parts_of(model), 5, 4)
    assert wanted == {"alone": (5, 4), "global-only": (0, 0)}.get(model, (0, 4))
    learner, targets = driven(model, 40, wanted)
    basis = learner.basis
    assert (len(basis.shared.Z) if basis.shared else 0, basis.local_size) == wanted
    X, weights = features.features(basis, learner.ring.inputs), learner.ring.weights
    Y = np.where(weights > 0, targets[~np.isnan(targets).all(axis=1)], np.nan)
    noise_var = learner.noise_var[LONG]
    stream = Stream(X, Y, 1 / np.maximum(weights, 1e-300), noise_var)
    lone = learning.alone(basis._replace(local=None)).knowledge
    deviation = lone.deviation_var if model != "global-only" else np.zeros_like(lone.deviation_var)
    # the weights that the layers were placed with are from the local scale before the last EM step
    local = np.full((2, basis.local_size), hyper.LOCAL)
    own = posterior.posterior(
        posterior.prior(learner.knowledge.belief, learner.knowledge.deviation_var, local),
        learning.total(learner)._replace(**{n: p[LONG] for n, p in learning.total(learner)._asdict().items()}),
        noise_var,
    )
    for q in range(2):
        joint = condition([stream], Priors(lone.prior_var, deviation, local), q)
        np.testing.assert_allclose(own.mean[q], joint.weights(0)[0], **NEARLY)
        np.testing.assert_allclose(own.cov[q], joint.weights(0)[1], **NEARLY)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("is_of_fleet", [True, False])
def test_a_switch_keeps_the_statistics_of_what_stays_to_the_last_bit(model: Model, is_of_fleet: bool) -> None:
    """From full: blocks that the model has no use for are cut out, which for sums over frames is exact."""
    basis = random_basis(np.random.default_rng(0), SHAPE, shared=3)
    knowledge = random_knowledge(np.random.default_rng(1), basis)
    before = member(5, "full", knowledge, 25).learner
    wanted = parts.sizes(parts_of(model), 3, 2)
    after = parts.switched(before, parts_of(model), wanted, is_of_fleet)
    of, F = after.basis, basis.size
    assert (of.shared is None, of.local is None) == (model in ("local-only", "pfedgp"), not parts_of(model).local)
    kept = [*range(of.size), *range(F, F + of.local_size)]
    np.testing.assert_array_equal(after.past.cross, before.past.cross[..., kept])
    np.testing.assert_array_equal(after.past.gram, before.past.gram[..., kept, :][..., kept])
    np.testing.assert_array_equal(after.past.square, before.past.square)
    is_none = np.all(after.knowledge.deviation_var == hyper.NO_DEVIATION)
    assert is_none == (model in ("no-deviation", "global-only"))
    assert np.array_equal(after.knowledge.belief.shift, knowledge.belief.shift) == (
        is_of_fleet and parts_of(model).shared
    )
    again = parts.switched(after, parts_of("full"), Sizes(0, 2), is_of_fleet)
    assert np.all(again.knowledge.deviation_var > hyper.NO_DEVIATION)


def test_a_layer_that_comes_late_is_placed_among_the_frames_at_hand() -> None:
    """Where older frames are gone, of them it knows nothing: the sums of what was there before stay as they were."""
    learner, _ = driven("no-local", 600, Sizes(0, 0))
    assert not moves.is_complete(learner)
    placed = parts.place(learner, Sizes(0, 4), "se")
    F = learner.basis.size
    assert placed.basis.local_size == 4
    np.testing.assert_allclose(
        placed.past.gram[..., :F, :F], learning.total(learner).gram, rtol=1e-7, atol=1e-7 * learner.past.gram.max()
    )
    assert np.all(np.isfinite(placed.weights.mean))
    assert parts.place(placed, Sizes(0, 4), "se") is placed  # once


def test_every_model_is_told_in_words_and_no_two_are_the_same() -> None:
    assert list(PARTS) == list(WORDS) == list(MODELS)
    assert len(set(PARTS.values())) == len(MODELS)
    assert PARTS["pfedgp"]._replace(kernel=False) == PARTS["local-only"]
