"""The coordinator's door: what an agent sent is decoded and checked before it can touch the fleet's model.

What is let in must never stop a round from closing: every number is in a range in which sums, changes of basis and
factorisations stay finite, and the sum of all terms and the prior stays positive definite.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgp import features, placement
from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.features import BLOCKS
from fleetgp.gp.hyper import CEILING, NO_DEVIATION
from fleetgp.gp.message import Term
from fleetgp.placement import Sums
from fleetgp.scaling import Moments
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import from_triangles, to_array
from fleetgp.wire.messages import Bootstrap, Summary

# What one term may take away by rounding from the prior's precision, which is 1 / CEILING at the least: 10,000 such take
# a tenth.
INDEFINITE = 1e-5 / CEILING
# A term cannot hold more precision than the deviation lets through, 1 / phi. Of the phi that its agent knew, that is: since
# then a few closes may have moved it, by hyper.MOST_STEP each.
SURPLUS = 8.0
MOST_READINGS = 1e15
LARGEST = 1e30
LARGEST_REBASED = 1e100


class Contents(NamedTuple):
    """What a summary says. noise_var, frames [Q]; deviation_square [Q, B], sums: None where the agent told none."""

    term: Term
    noise_var: Array
    frames: Array
    deviation_square: Array | None
    sums: Sums | None


def bootstrap(payload: bytes, agent_id: str) -> Bootstrap:
    """Raises PeerError; code ``other_agent`` when it was sent on another agent's topic."""
    message = codec.decode(payload, Bootstrap)
    _check_sender(message.agent, agent_id)
    return message


def summary(payload: bytes, agent_id: str) -> Summary:
    """Raises PeerError; code ``other_agent`` when it was sent on another agent's topic."""
    message = codec.decode(payload, Summary)
    _check_sender(message.agent, agent_id)
    return message


def common(schema: Schema) -> Schema:
    """What all agents of a fleet share of a schema.

    Topics, fields and units are each agent's own: the fleet's model tells nobody where another agent's readings come from.
    """
    return Schema(
        channels=tuple(Channel(name=c.name, transform=c.transform) for c in schema.channels),
        covariates=tuple(
            Covariate(name=c.name, transform=c.transform, known_ahead=c.known_ahead) for c in schema.covariates
        ),
        interval_s=schema.interval_s,
        lags=schema.lags,
        phases=schema.phases,
        harmonics=schema.harmonics,
        inducing=schema.inducing,
        kernel=schema.kernel,
        mixing=schema.mixing,
        position=schema.position,
        position_period=schema.position_period,
        ranks=schema.ranks,
    )


def moments(message: Bootstrap) -> Moments:
    """Moments [K] of a bootstrap. Raises PeerError ``shape``, ``finite``, ``negative`` or ``range``."""
    shape = (len(message.schema.inputs),)
    result = Moments(
        to_array(message.count, shape, "count"),
        to_array(message.mean, shape, "mean"),
        to_array(message.centred_square_sum, shape, "centred_square_sum"),
    )
    if np.any(result.n < 0) or np.any(result.centred_square_sum < 0):
        raise PeerError("negative", f"{message.agent} sent a negative count or sum of squares")
    variance = result.centred_square_sum / np.maximum(result.n, 1.0)
    is_sound = (
        np.all(((result.n >= 1) & (result.n <= MOST_READINGS)) | ((result.n == 0) & (variance == 0)))
        and np.all(np.abs(result.mean) <= LARGEST)
        and np.all((variance == 0) | ((variance >= LARGEST**-2) & (variance <= LARGEST**2)))
    )
    if not is_sound:
        raise PeerError("range", f"{message.agent} sent moments that no sensor has")
    return result


def contents(message: Summary, schema: Schema, deviation_var: Array) -> Contents:
    """What a summary says; deviation_var [Q, F]: prior variance of an agent's deviation as of today.

    Raises PeerError ``shape``, ``finite``, ``negative``, ``range`` or ``indefinite``.
    """
    Q, size = deviation_var.shape
    triangles = to_array(message.precision, (Q, size * (size + 1) // 2), "precision")
    shift = to_array(message.shift, (Q, size), "shift")
    noise_var, count = noise_and_count(message, Q)
    if not np.all(np.abs(shift) <= LARGEST):
        raise PeerError("range", f"{message.agent} sent numbers that no readings lead to")
    precision = from_triangles(triangles, size)
    check_precision(message.agent, precision, most_deviation(message.has_deviation, deviation_var))
    square = _deviation_square(message, Q)
    return Contents(Term(precision, shift), noise_var, count, square, _sums(message, schema))


def noise_and_count(message: Summary, channels: int) -> tuple[Array, Array]:
    """Noise variance [Q] and frames [Q]. Raises PeerError ``shape``, ``finite``, ``negative`` or ``range``."""
    noise_var = to_array(message.noise_variance, (channels,), "noise_variance")
    count = to_array(message.count, (channels,), "count")
    if np.any(count < 0) or np.any(noise_var <= 0):
        raise PeerError("negative", f"{message.agent} sent a negative count or a noise variance that is not positive")
    if not (np.all(count <= MOST_READINGS) and np.all((noise_var >= 1 / LARGEST) & (noise_var <= LARGEST))):
        raise PeerError("range", f"{message.agent} sent numbers that no readings lead to")
    return noise_var, count


def most_deviation(has_deviation: bool, deviation_var: Array) -> Array:
    """Prior variance of a deviation by which an agent's precision is judged: next to none for one that has none."""
    return deviation_var if has_deviation else np.full_like(deviation_var, NO_DEVIATION)


def check_precision(agent_id: str, precision: Array, deviation_var: Array | None) -> None:
    """Raise PeerError ``range`` or ``indefinite`` where a term's precision [Q, F, F] is none that an agent can have.

    deviation_var [Q, F]: prior variance of its deviation, which bounds what it can know; None where something else does.
    """
    if not np.all(np.abs(precision) <= LARGEST):
        raise PeerError("range", f"{agent_id} sent a precision beyond {LARGEST:g}")
    if deviation_var is not None:
        sd = np.sqrt(deviation_var)
        most = np.linalg.eigvalsh(sd[:, :, None] * precision * sd[:, None, :])[:, -1]
        if not np.all(most <= SURPLUS):
            raise PeerError("range", f"{agent_id} claims to know more than a deviating agent can")
    if not np.all(np.linalg.eigvalsh(precision)[:, 0] >= -INDEFINITE):
        raise PeerError("indefinite", f"{agent_id} sent a precision that is not positive semidefinite")


def _deviation_square(message: Summary, channels: int) -> Array | None:
    if message.deviation_square is None:
        return None
    square = to_array(message.deviation_square, (channels, len(BLOCKS)), "deviation_square")
    if np.any(square < 0):
        raise PeerError("negative", f"{message.agent} sent a negative mean square")
    if np.any(square > LARGEST):
        raise PeerError("range", f"{message.agent} sent a deviation beyond {LARGEST:g}")
    return square


def _sums(message: Summary, schema: Schema) -> Sums | None:
    if message.cluster_count is None and message.cluster_sum is None:
        return None
    if message.cluster_count is None or message.cluster_sum is None or not schema.inducing:
        raise PeerError(
            "shape", f"{message.agent} sent sums without counts, counts without sums, or some nobody asked for"
        )
    columns = len(placement.columns(features.shape(schema)))
    count = to_array(message.cluster_count, (schema.inducing,), "cluster_count")
    total = to_array(message.cluster_sum, (schema.inducing, columns), "cluster_sum")
    if np.any(count < 0):
        raise PeerError("negative", f"{message.agent} sent a negative count of frames near a centre")
    # a sum of no frames is 0; the mean of some is a place in scaled inputs
    if np.any(count > MOST_READINGS) or np.any(np.abs(total) > LARGEST * count[:, None]):
        raise PeerError("range", f"{message.agent} sent sums that no frames have")
    return Sums(count, total)


def is_usable(term: Term, noise_var: Array) -> bool:
    """Whether a term that was let in may still be added after a change of basis."""
    if not all(bool(np.all(np.abs(x) <= LARGEST_REBASED)) for x in (*term, noise_var)):
        return False
    if not np.all(noise_var >= 1 / LARGEST_REBASED):
        return False
    return bool(np.all(np.linalg.eigvalsh(term.precision)[:, 0] >= -INDEFINITE))


def _check_sender(named: str, agent_id: str) -> None:
    if named != agent_id:
        raise PeerError("other_agent", f"a message of {named!r} came on the topic of {agent_id!r}")
