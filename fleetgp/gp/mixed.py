"""One agent's streaming model of mixed channels: all readings of a frame from its position, through a few latent functions.

y = Bg fg(x) + Bd fd(x) + Bl fl(x) + e at the position x of the frame (``mixing``), e going on from frame to frame (``chain``).
Readings are in transformed units; the learner scales them. Between exact solutions every frame is an update of rank Q without
forgetting. What was learnt is the sums of the frames that left the ring, and the ring's own frames, exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from fleetgp.arrays import Array
from fleetgp.gp import chain, hierarchy, joint, mixed_climb, mixing, moves, position, tail
from fleetgp.gp.aggregate import prior
from fleetgp.gp.hierarchy import Own, Start
from fleetgp.gp.learner import LEAST_NOISE, LEAST_SHARE, Forgetting, Inputs, due
from fleetgp.gp.message import Term
from fleetgp.gp.mixed_solve import folded, moved, solve, total
from fleetgp.gp.mixed_state import NOT_YET, Guess, Known, Mixed, Row, Told
from fleetgp.gp.mixing import Posterior
from fleetgp.gp.position import Plan
from fleetgp.linalg import cholesky, symmetric
from fleetgp.scaling import Moments, Scaling, scaling

NOISE_FRAMES = 5.0
# standard deviations from which an error is a glitch, which does not go on
GLITCH = 6.0
SWITCH_STEPS = 8


def alone(plan: Plan, scaling: Scaling) -> Mixed:
    """A learner that knows of no fleet."""
    start = position.start(plan, scaling)
    size = plan.ranks.shared * plan.inducing
    known = Known(position.shared(plan, start), prior(np.ones((1, size))), start.noise_var, NOISE_FRAMES, 1.0)
    return knowing(plan, scaling, known)


def on_moments(moments: Moments, plan: Plan) -> Mixed:
    """A lone learner scaled by its own first readings."""
    return alone(plan, scaling(moments))


def knowing(plan: Plan, scaling: Scaling, known: Known) -> Mixed:
    """A learner with knowledge of a fleet and no data of its own."""
    start = position.start(plan, scaling)
    own = position.own(plan, start)._replace(log_noise_var=np.log(known.noise_guess))
    mix = hierarchy.mixing(known.shared, own, plan.kernel)
    Q, W = plan.channels, sum(mix.sizes)
    learner = Mixed(
        plan=plan,
        scaling=scaling,
        start=start,
        known=known,
        own=own,
        mix=mix,
        gone=chain.empty(Q, plan.inducing + plan.own),
        ring=chain.no_frames(len(plan.columns), Q),
        weights=Posterior(np.zeros(W), np.eye(W)),
        rho=np.zeros(Q),
        spare=np.zeros(2),
        tail=tail.init(Q, 1),
        correlation=joint.init(Q),
        climbing=NOT_YET,
        earlier=np.full(len(plan.columns), np.nan),
    )
    return solve(learner)


def foresee(learner: Mixed, inputs: Inputs) -> Guess:
    """The law of the next frame, from what was known before it."""
    mix, unit = learner.mix, learner.unit
    z = (inputs.last - learner.centre) / unit
    at = _standing(learner, inputs, z)
    whole = chain.rows(mix, np.tile(at.features, (len(z), 1)))
    before = chain.rows(mix, at.before)
    rows = whole - at.link[:, None] * before
    reach = rows @ learner.weights.cov
    noise = learner.noise_var * (1.0 - at.link**2)
    sd = np.sqrt(noise)
    C = reach @ rows.T + sd[:, None] * learner.correlation.matrix * sd
    if np.any(at.residual > learner.spare):
        C += np.tensordot(np.maximum(at.residual - learner.spare, 0.0), mixing.layer_covariances(mix), axes=1)
    variance = np.maximum(np.diagonal(C), LEAST_NOISE)
    scale = unit * np.sqrt(np.maximum(variance * tail.scale(learner.tail), (inputs.floor / unit) ** 2))
    base = learner.centre + unit * at.link * (z - before @ learner.weights.mean)
    layers = unit * _layers(learner, whole)
    spread = np.sqrt(np.diagonal(C))
    return Guess(
        base + layers.sum(axis=0), scale, learner.tail.degrees, C / spread / spread[:, None], rows, reach, variance, noise,
        np.column_stack((base, layers.T)), at.x, at.earlier, at.ticks, z,
    )  # fmt: skip


class _Standing(NamedTuple):
    """Where a frame stands: x, earlier [D]: position, and that one tick before; features [K] there and what they cannot express
    [2]. before [Q, K]: features where each channel was last read; link [Q]: how much of its error then goes on; ticks [Q]:
    since then, 0 where it tells nothing."""

    x: Array
    earlier: Array
    features: Array
    residual: Array
    before: Array
    link: Array
    ticks: Array


def _standing(learner: Mixed, inputs: Inputs, z: Array) -> _Standing:
    """z [Q]: last readings, scaled."""
    plan, mix = learner.plan, learner.mix
    x = position.of(plan, inputs.inputs)
    ticks = inputs.age + 1.0
    # of a position that is no cycle's nobody has kept where it stood longer ago
    most = chain.MOST_TICKS if plan.turn else float(np.all(np.isfinite(learner.earlier)))
    is_known = np.isfinite(z) & (ticks <= most)
    ago = sorted({1.0, *ticks[is_known].tolist()})
    earlier = np.where(np.isfinite(learner.earlier), learner.earlier, x)
    places = position.back(plan, x, np.array([0.0, *ago])) if plan.turn else np.array([x, earlier])
    F, r = mixing.features(mix, places)
    before = F[1 + np.searchsorted(ago, np.where(is_known, ticks, 1.0))]
    error = z - np.sum(chain.effects(mix, learner.weights.mean) * before, axis=1)
    is_known &= np.abs(error) <= GLITCH * np.sqrt(learner.noise_var * tail.scale(learner.tail))
    ticks = np.where(is_known, ticks, 0.0)
    link = np.where(is_known, learner.rho**ticks, 0.0)
    return _Standing(x, places[1], F[0], r[0], before, link, ticks)


def _layers(learner: Mixed, rows: Array) -> Array:
    """What each layer adds [3, Q], scaled, at a frame with these rows [Q, W]."""
    ends = np.cumsum(learner.mix.sizes)
    mean = learner.weights.mean
    return np.array(
        [part @ m for part, m in zip(np.split(rows, ends[:2], axis=1), np.split(mean, ends[:2]), strict=True)]
    )


def split(guess: Guess) -> Array:
    """Layers [Q, 5] as they are told: base, shared, deviation, local; and a pull of 1, for they are of the level itself."""
    return np.column_stack((guess.parts, np.ones(len(guess.parts))))


def learn(learner: Mixed, guess: Guess, observed: Array, rule: Forgetting) -> Mixed:
    """After one frame: observed [Q] in transformed units, NaN = missing or not to be learnt.

    A frame teaches whole up to six standard deviations of its law, less by the square beyond them.
    """
    learner = passed(learner, guess)
    if np.isnan(observed).all():
        return learner
    error = (observed - guess.mean) / learner.unit
    square = tail.squared(error, guess.variance)
    followed = tail.step(learner.tail, error[None], guess.variance[None], square)
    share = np.where(np.isnan(error), 0.0, tail.weight(square))
    y = (observed - learner.centre) / learner.unit
    row = Row(guess.x, guess.earlier, y, guess.before, guess.ticks, share)
    told = Told(error * learner.unit / guess.scale, square, learner.tail.scales)
    learner = msgspec.structs.replace(
        learner,
        weights=_updated(learner, guess, error, share),
        tail=followed,
        fresh=(*learner.fresh, row),
        told=(*learner.told, told),
        frames=learner.frames + 1,
    )
    return refresh(learner, rule) if len(learner.told) >= due(learner.frames, rule) else learner


def passed(learner: Mixed, guess: Guess) -> Mixed:
    """After a frame that is not learnt."""
    return learner if learner.plan.turn else msgspec.structs.replace(learner, earlier=guess.x)


def _updated(learner: Mixed, guess: Guess, error: Array, share: Array) -> Posterior:
    """Weights after one frame's errors [Q], of the channels that teach."""
    told = share > 0
    reach = guess.reach[told]
    noise = guess.noise[told] / np.maximum(share[told] * learner.known.own_weight, LEAST_SHARE)
    L, _ = cholesky(symmetric(reach @ guess.rows[told].T) + np.diag(noise))
    step = np.linalg.solve(L, reach)
    mean, cov = learner.weights
    return Posterior(mean + np.linalg.solve(L, error[told]) @ step, cov - step.T @ step)


def refresh(learner: Mixed, rule: Forgetting) -> Mixed:
    """Fold the fresh frames in, forget, now and then learn the own values, and solve."""
    told = learner.told
    errors = np.array([one.errors for one in told])
    squares = np.array([one.squares for one in told])
    chosen = tail.choose(learner.tail, np.array([one.scales for one in told]), squares)
    learner = folded(learner)
    factor = float(0.5 ** (len(told) / rule.half_life))
    learner = msgspec.structs.replace(
        learner,
        gone=chain.decay(learner.gone, factor),
        ring=learner.ring._replace(kept=factor * learner.ring.kept),
        correlation=joint.learn(learner.correlation, errors, factor),
        tail=chosen,
        told=(),
    )
    if mixed_climb.is_due(learner):
        learner = mixed_climb.improved(learner)
    return solve(learner)


def rescale(learner: Mixed, moments: Moments) -> Mixed:
    """Without a fleet: a new scale where it would differ by a quarter; looked at often while readings are few."""
    new = moves.rescaled(learner.scaling, moments) if moves.may_rescale(learner.frames) else None
    return learner if new is None else on_scaling(learner, new)


def on_scaling(learner: Mixed, new: Scaling) -> Mixed:
    """A lone learner in another unit; inducing inputs of a position lie anew where its scale says."""
    start = position.start(learner.plan, new)
    known = learner.known
    shared = known.shared._replace(Zg=start.Zg, log_lengthscale=np.log(start.lengthscale_g))
    learner = moved(learner, shared, _own_in(learner, start, new), new)
    return solve(solve(msgspec.structs.replace(learner, start=start)))


def inform(learner: Mixed, scaling: Scaling, known: Known) -> Mixed:
    """Take a fleet's knowledge, on whatever scale and shared values it is."""
    start = position.start(learner.plan, scaling)
    learner = moved(learner, known.shared, _own_in(learner, start, scaling), scaling)
    # the fleet's noise first, then the weights under it
    return solve(solve(msgspec.structs.replace(learner, start=start, known=known)))


def joining(learner: Mixed, scaling: Scaling, known: Known) -> Mixed:
    """``inform`` of one who was alone: what it took for its own until now may be what all do, and is learnt anew beside that."""
    learner = folded(learner)
    own = position.own(learner.plan, learner.start)
    fresh = learner.own._replace(Bd=own.Bd, Bl=own.Bl)
    at = min(learner.climbing.at, float(learner.frames) + 1.0)
    learner = moved(learner, learner.known.shared, fresh)
    return inform(msgspec.structs.replace(learner, climbing=NOT_YET._replace(at=at)), scaling, known)


def _own_in(learner: Mixed, start: Start, new: Scaling) -> Own:
    """What an agent keeps to itself, for ``moved`` to another unit: loadings that were learnt say the same of its readings, the
    first guesses stay what they are in any unit, and inducing inputs lie where the position's scale says."""
    Q, own = learner.plan.channels, learner.own._replace(Zi=start.Zi)
    ratio = new.scale / learner.scaling.scale
    if not learner.plan.is_circle:
        own = own._replace(log_lengthscale=own.log_lengthscale + np.log(ratio[Q:]))
    if not len(learner.climbing.steps):
        return own
    return own._replace(Bd=own.Bd / ratio[:Q, None], Bl=own.Bl / ratio[:Q, None])


def switched(learner: Mixed, plan: Plan) -> Mixed:
    """The learner with other parts of the model: what was learnt of all frames stays, for sums know of no loadings.

    A part that was there before keeps its loadings. Without the fleet nothing of the fleet's is believed.
    """
    learner = folded(learner)
    fresh, ranks, old = position.own(plan, learner.start), plan.ranks, learner.plan.ranks
    own = learner.own._replace(
        Bd=learner.own.Bd if ranks.deviation == old.deviation else fresh.Bd,
        Bl=learner.own.Bl if ranks.local == old.local else fresh.Bl,
    )
    known = learner.known
    if ranks.shared != old.shared:
        shared = known.shared._replace(Bg=position.shared(plan, learner.start).Bg)
        known = known._replace(shared=shared, belief=prior(np.ones((1, ranks.shared * plan.inducing))), own_weight=1.0)
    learner = moved(msgspec.structs.replace(learner, plan=plan, known=known), known.shared, own)
    # what is left must do for all that was there before: it is learnt on the ring at once
    for _ in range(SWITCH_STEPS if len(learner.ring.x) else 0):
        learner = mixed_climb.improved(solve(learner))
    return solve(learner)


def summary(learner: Mixed) -> Term:
    """What this agent tells the fleet: its likelihood of the shared weights, precision [1, F, F], shift [1, F]."""
    return mixing.summarise(learner.mix, total(learner).sums).term
