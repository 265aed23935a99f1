"""The coordinator's sum: exact posterior of the shared weights from the agents' terms in one round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp.message import Term
from fleetgp.linalg import cholesky


class Belief(NamedTuple):
    """q(v) of the shared weights in natural parameters: precision [Q, F, F] (prior included), shift [Q, F]."""

    precision: Array
    shift: Array


def prior(prior_var: Array) -> Belief:
    """v ~ N(0, diag(prior_var)); prior_var [Q, F]."""
    return Belief((1.0 / prior_var)[..., None] * np.eye(prior_var.shape[-1]), np.zeros_like(prior_var))


def posterior(terms: Iterable[Term], prior_var: Array) -> Belief:
    """Precision diag(1 / prior_var) + sum P_i, shift sum h_i. The order of the terms fixes the last bits: callers sort by agent."""
    precision, shift = prior(prior_var)
    for term in terms:
        precision += term.precision
        shift += term.shift
    return Belief(precision, shift)


def log_evidence(belief: Belief, prior_var: Array) -> float:
    """log of the integral of exp(-v^T P v / 2 + h^T v) over v ~ N(0, diag(prior_var)), summed over channels, in nats.

    belief: the posterior of the terms whose sums P and h are. With the terms' constants it is the evidence of all their data.
    """
    L, _ = cholesky(belief.precision)
    z = np.linalg.solve(L, belief.shift[..., None])
    log_det = 2.0 * float(np.sum(np.log(np.diagonal(L, axis1=-2, axis2=-1)))) + float(np.sum(np.log(prior_var)))
    return 0.5 * (float(np.sum(z * z)) - log_det)


def cavity(belief: Belief, own: Term) -> Belief:
    """The posterior without an agent's own part: exactly what it had sent, at the factor the posterior holds it."""
    return Belief(belief.precision - own.precision, belief.shift - own.shift)


def halved(belief: Belief, prior_var: Array) -> Belief:
    """The fleet's half of a covariance intersection: prior + (sum P) / 2, shift (sum h) / 2.

    For an agent that no longer knows what of its own is inside. With half of its own term beside it nothing is counted
    twice (prior + (sum P) / 2 + P_own / 2, models.md section 4, "Cavity"). Half a term is that of half the data under a
    deviation of twice the prior variance: half the data alone tell more than half of what all do.
    """
    before = prior(prior_var).precision
    return Belief(before + 0.5 * (belief.precision - before), 0.5 * belief.shift)


def pooled_noise(noise_vars: Array, counts: Array) -> Array:
    """Noise variance typical of the fleet [Q]: count-weighted geometric mean over agents; inputs [n_agents, Q]."""
    weights = np.maximum(counts, 1e-12)
    return np.asarray(np.exp(np.sum(weights * np.log(noise_vars), axis=0) / np.sum(weights, axis=0)))
