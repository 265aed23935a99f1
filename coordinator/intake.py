"""The coordinator's door: what an agent sent is decoded and checked before it can touch the fleet's model.

What is let in must never stop a round from closing: every number is in a range in which sums, changes of basis and
factorisations stay finite, and the sum of all terms and the prior stays positive definite.
"""

from __future__ import annotations

import numpy as np

from fleetgp.arrays import Array
from fleetgp.errors import PeerError
from fleetgp.gp.message import Term
from fleetgp.scaling import Moments
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import from_triangles, to_array
from fleetgp.wire.messages import Bootstrap, Summary

# What one term may take away from the prior's precision of 1 by rounding: 10,000 such take a tenth.
INDEFINITE = 1e-5
# A term cannot hold more precision than the deviation lets through, 1 / phi; twice that allows for rounding.
SURPLUS = 2.0
MOST_READINGS = 1e15
LARGEST = 1e30
LARGEST_REBASED = 1e100


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


def term(message: Summary, channels: int, phi: Array) -> tuple[Term, Array, Array]:
    """Term, noise variance [Q] and count [Q]; phi [F] as in the fleet's model.

    Raises PeerError ``shape``, ``finite``, ``negative``, ``range`` or ``indefinite``.
    """
    size = len(phi)
    triangles = to_array(message.precision, (channels, size * (size + 1) // 2), "precision")
    shift = to_array(message.shift, (channels, size), "shift")
    noise_var = to_array(message.noise_variance, (channels,), "noise_variance")
    count = to_array(message.count, (channels,), "count")
    if np.any(count < 0) or np.any(noise_var <= 0):
        raise PeerError("negative", f"{message.agent} sent a negative count or a noise variance that is not positive")
    is_sound = (
        np.all(count <= MOST_READINGS)
        and np.all((noise_var >= 1 / LARGEST) & (noise_var <= LARGEST))
        and np.all(np.abs(shift) <= LARGEST)
    )
    if not is_sound:
        raise PeerError("range", f"{message.agent} sent numbers that no readings lead to")
    precision, most = from_triangles(triangles, size), SURPLUS / float(np.min(phi))
    eigenvalues = np.linalg.eigvalsh(precision)
    if not np.all(eigenvalues[:, -1] <= most):
        raise PeerError("range", f"{message.agent} claims to know more than a deviating agent can")
    if not np.all(eigenvalues[:, 0] >= -INDEFINITE):
        raise PeerError("indefinite", f"{message.agent} sent a precision that is not positive semidefinite")
    return Term(precision, shift), noise_var, count


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
