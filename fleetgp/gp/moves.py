"""Taking a learner to another basis: exact for what is linear, projected for inducing features, refused where too much is lost.

Statistics = rebase(past) + exact(ring) (models.md section 3, "Basis change"). The projection of the prior is mended by what
the ring shows of it, and the past is scaled down by what even then cannot be expressed: an error that is the same at every
frame, which no number of frames makes smaller.
"""

from __future__ import annotations

import numpy as np

from fleetgp import features, inducing, placement
from fleetgp.arrays import Array
from fleetgp.errors import BasisRefused
from fleetgp.features import Basis
from fleetgp.gp import learner as learning
from fleetgp.gp import posterior, statistics
from fleetgp.gp.learner import LONG, TRACKS, Learner
from fleetgp.gp.posterior import Weights
from fleetgp.gp.statistics import Statistics
from fleetgp.inducing import Inducing
from fleetgp.linalg import inverse, symmetric
from fleetgp.scaling import Moments, Scaling, scaling
from fleetgp.schema import Kernel

# share of the noise that a projection may lose of the function before it is refused
MOST_LOSS = 0.25
RESCALE_RATIO = 1.25
RESCALE_OFTEN = 64
RESCALE_UNTIL = 4096
# worth of the prior's projection beside the ring's frames, in squared features
RIDGE = 1e-2


def change(old: Basis, new: Basis) -> tuple[Array, Array]:
    """T [F_new, F_old] of the shared features and ratio [Q] of targets between two bases."""
    bare_old, bare_new = old._replace(local=None), new._replace(local=None)
    return features.change(bare_old, bare_new), _ratio(old, new)


def _ratio(old: Basis, new: Basis) -> Array:
    """Of targets [Q], new to old."""
    return np.asarray((old.scaling.scale / new.scaling.scale)[: old.shape.channels])


def loss(learner: Learner, basis: Basis) -> Array:
    """Variance [Q] that a projection loses of the function, in shares of the noise; 0 where all frames are in the ring."""
    ring, old = learner.ring, learner.basis
    if is_complete(learner) or not len(ring.inputs) or _keeps_inducing(old, basis):
        return np.zeros(old.shape.channels)
    T = _projection(learner, basis)
    gone = features.features(old, ring.inputs) @ T.T - features.features(basis, ring.inputs)
    return np.asarray(np.mean(gone**2, axis=0) @ _variances(learner, basis).T / learner.noise_var[LONG])


def is_same(old: Basis, new: Basis) -> bool:
    """Whether two bases are one."""
    return _keeps_inducing(old, new) and all(map(np.array_equal, old.scaling, new.scaling))


def is_complete(learner: Learner) -> bool:
    """Whether every frame learnt is still in the ring."""
    return learner.frames <= len(learner.ring.inputs)


def move(learner: Learner, basis: Basis) -> Learner:
    """The learner on another basis, to be informed or solved next. Raises BasisRefused where more than MOST_LOSS is lost."""
    learner = learning.folded(learner)
    lost = loss(learner, basis)
    if np.any(lost > MOST_LOSS):
        raise BasisRefused(float(np.max(lost)))
    if is_complete(learner):
        past = _exact(learner, basis)
    elif _keeps_inducing(learner.basis, basis):
        past = statistics.rebase(learner.past, features.change(learner.basis, basis), _ratio(learner.basis, basis))
    else:
        before = statistics.without(learner.past, _exact(learner, learner.basis))
        old = statistics.rebase(before, _projection(learner, basis), _ratio(learner.basis, basis))
        # the ring holds the error down to its share of as many frames as it has: more of the past cannot be surer
        kept = 1.0 / (1.0 + lost * (1.0 + before.n / len(learner.ring.inputs)))
        past = statistics.merge(statistics.weighted(old, kept), _exact(learner, basis))
    return _with_past(learner, basis, past)


def restart(learner: Learner, basis: Basis) -> Learner:
    """The learner on a basis that its past could not be taken to: only the frames in the ring are kept."""
    learner = learning.folded(learner)
    kept = learner._replace(frames=len(learner.ring.inputs))
    return _with_past(kept, basis, _exact(learner, basis))


def _with_past(learner: Learner, basis: Basis, past: Statistics) -> Learner:
    spare = learner.spare
    if len(learner.ring.inputs):
        spare = features.residual(basis, features.features(basis, learner.ring.inputs)).mean(axis=0)
    Q, size = basis.shape.channels, basis.size + basis.local_size
    # weights are solved anew from the statistics before anything is foreseen with them
    weights = Weights(np.zeros((TRACKS, Q, size)), np.tile(np.eye(size), (TRACKS, Q, 1, 1)))
    moved = learner._replace(
        basis=basis, line=features.line(basis), past=past, base=posterior.running(weights), spare=spare
    )
    return moved._replace(noise_var=_ratio(learner.basis, basis) ** 2 * learner.noise_var)


def _exact(learner: Learner, basis: Basis) -> Statistics:
    """Statistics [T, ...] of the ring's frames on a basis."""
    ring = learner.ring
    x = features.features(basis, ring.inputs)
    y = ring.targets / basis.scaling.scale[: basis.shape.channels]
    parts = [statistics.summed(x, y, ring.weights, kept) for kept in ring.kept]
    return Statistics(*(np.stack(part) for part in zip(*parts, strict=True)))


def _projection(learner: Learner, basis: Basis) -> Array:
    """T with features_new ~ T features_old: the prior's, mended by least squares over the ring, with that as a ridge."""
    T, ring = features.change(learner.basis, basis), learner.ring
    X = features.features(learner.basis, ring.inputs)
    gone = features.features(basis, ring.inputs) - X @ T.T
    weighted = X.T * ring.weights.mean(axis=1)
    mended = inverse(symmetric(weighted @ X) + RIDGE * np.eye(X.shape[1])) @ (weighted @ gone)
    # what is linear is exact already
    mended[:, : basis.shape.linear] = 0.0
    return np.asarray(T + mended.T)


def _variances(learner: Learner, basis: Basis) -> Array:
    """Prior variance [Q, F + F_local] of the weights of inducing features on a new basis; 0 for what is linear.

    0 too for a layer that the old basis had not: of it nothing was learnt, so nothing can be lost.
    """
    known, shape = learner.knowledge, basis.shape
    result = np.zeros((shape.channels, basis.size + basis.local_size))
    if learner.basis.shared:
        result[:, shape.linear : basis.size] = known.inducing_var[:, None]
    if learner.basis.local:
        result[:, basis.size :] = learner.local_var[:, None]
    return result


def _keeps_inducing(old: Basis, new: Basis) -> bool:
    return features.same(old.shared, new.shared) and features.same(old.local, new.local)


def rescale(learner: Learner, moments: Moments) -> Learner:
    """On an own basis: a new scale where it would differ by a quarter; looked at often while readings are few."""
    if not may_rescale(learner.frames):
        return learner
    new = rescaled(learner.basis.scaling, moments)
    if new is None:
        return learner
    return learning.inform(move(learner, learner.basis._replace(scaling=new)), learner.knowledge)


def rescaled(old: Scaling, moments: Moments) -> Scaling | None:
    """The scale of these moments, where it differs by a quarter."""
    new = scaling(moments)
    ratio = new.scale / old.scale
    moved = np.abs(new.centre - old.centre) / new.scale
    is_other = np.any(np.maximum(ratio, 1 / ratio) > RESCALE_RATIO) or np.any(moved > RESCALE_RATIO)
    return new if is_other else None


def may_rescale(frames: int) -> bool:
    """After every frame up to the first count, whenever frames have doubled up to the second."""
    return frames <= RESCALE_OFTEN or (frames <= RESCALE_UNTIL and frames & (frames - 1) == 0)


def place_local(learner: Learner, size: int, kernel: Kernel) -> Learner:
    """Give a learner its local layer, once, while every frame it learnt is still in the ring: nothing is lost by it."""
    learner = learning.folded(learner)
    if not size or learner.basis.local or not is_complete(learner):
        return learner
    local = among_own(learner, size, kernel)
    return learning.inform(move(learner, learner.basis._replace(local=local)), learner.knowledge)


def among_own(learner: Learner, size: int, kernel: Kernel) -> Inducing:
    """Inducing inputs placed by k-means among the frames in the ring, n >= 1."""
    columns = placement.columns(learner.basis.shape)
    inputs = inducing.picked(learner.ring.inputs, columns)
    centre, sd = np.mean(inputs, axis=0), np.std(inputs, axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    centres = placement.fitted(size, (inputs - centre) / sd, least=1)
    return placement.at(kernel, columns, Scaling(centre, sd), centres.place)


def dropped(learner: Learner, basis: Basis) -> Learner:
    """The learner without an inducing block or two, to be informed or solved next; basis: its own but for these. Exact."""
    learner, old = learning.folded(learner), learner.basis
    if features.same(old.shared, basis.shared) and features.same(old.local, basis.local):
        return learner
    is_kept = np.ones(old.size + old.local_size, dtype=bool)
    is_kept[old.shape.linear : old.size] = basis.shared is not None
    is_kept[old.size :] = basis.local is not None
    n, square, cross, gram = learner.past
    return _with_past(learner, basis, Statistics(n, square, cross[..., is_kept], gram[..., is_kept, :][..., is_kept]))
