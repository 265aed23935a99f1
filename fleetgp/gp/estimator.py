"""pFedHGP as a library, without a broker: fit a fleet of data sets, foresee each, let newcomers in.

    model = PFedHGP().fit({"pump-1": (X1, Y1), "pump-2": (X2, Y2)})
    mean, cov = model.predict("pump-1", X, return_cov=True)

The rounds are those that a fleet plays over a broker; here they are played in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, overload

import numpy as np

from fleetgp import placement
from fleetgp.arrays import Array
from fleetgp.errors import ConfigError
from fleetgp.gp import fleet, hierarchy, mixing
from fleetgp.gp.client import Client
from fleetgp.gp.fleet import Fleet
from fleetgp.gp.hierarchy import Ranks, Start
from fleetgp.gp.mixing import Law, Mixing, Posterior
from fleetgp.scaling import Scaling
from fleetgp.schema import MAX_CHANNELS, MAX_INDUCING, Kernel

Data = Mapping[str, tuple[Array, Array]]
# lengthscales of both bases at the start, in standard deviations of an input: a span is about 3.5 of these
LENGTH_G, LENGTH_I = 0.7, 0.15
# noise at the start, in standard deviations of a channel, and how far both may be off, as standard deviations of a logarithm
NOISE_SD = 0.1
LENGTHSCALE_SD, NOISE_LOG_SD = 1.0, 2.0
# of a newcomer, who learns while the fleet stays as it is
NEWCOMER_EVALUATIONS = 60
BOTH = Ranks()


class PFedHGP:
    """A fleet of clients with a shared, a deviating and a private layer each (models.md section 1).

    ranks: latent functions of the three layers, 0 switches one off. inducing, local_inducing: inducing inputs of the shared and
    of each client's own basis, at most 200. rounds: of learning hyperparameters. seed: of first loadings and of draws.
    """

    def __init__(
        self,
        ranks: Ranks = BOTH,
        *,
        inducing: int = 25,
        local_inducing: int = 25,
        kernel: Kernel = "se",
        rounds: int = fleet.ROUNDS,
        seed: int = 0,
    ) -> None:
        if min(ranks) < 0 or sum(ranks) == 0:
            raise ConfigError("ranks", f"{tuple(ranks)} must not be negative, and one at least above 0")
        for name, count in (("inducing", inducing), ("local_inducing", local_inducing)):
            if not 1 <= count <= MAX_INDUCING:
                raise ConfigError(name, f"{count} is not between 1 and {MAX_INDUCING}")
        if rounds < 1:
            raise ConfigError("rounds", f"{rounds} is not at least 1")
        self.ranks, self.kernel, self.rounds, self.seed = ranks, kernel, rounds, seed
        self.inducing, self.local_inducing = inducing, local_inducing
        self._fleet: Fleet | None = None

    def fit(self, data: Data) -> PFedHGP:
        """Learn everything from inputs X [n, D] and readings Y [n, Q] of each client; NaN in Y is a missing reading.

        Vectors are taken as one column. Raises ConfigError where shapes do not agree or an input is no number.
        """
        if not data:
            raise ConfigError("data", "there is no client to learn from")
        checked = {name: _checked(name, *pair) for name, pair in sorted(data.items())}
        self._agree(checked)
        X = np.concatenate([pair[0] for pair in checked.values()])
        Y = np.concatenate([pair[1] for pair in checked.values()])
        self._inputs, self._readings = _scaling(X), _scaling(Y)
        self._start = self._first(self._scaled(X), Y.shape[1])
        self._rng = np.random.default_rng(self.seed)
        shared = hierarchy.shared(self._start, self.ranks, self._rng)
        clients = {name: self._client(*pair) for name, pair in checked.items()}
        self._learnt(fleet.learn(clients, shared, self._start, self.rounds))
        return self

    def partial_fit(self, data: Data) -> PFedHGP:
        """Further frames of clients, new ones among them; hyperparameters of those that are known stay. One round, exact."""
        if self._fleet is None:
            return self.fit(data)
        checked = {name: _checked(name, *pair) for name, pair in sorted(data.items())}
        self._agree(checked)
        for name, (X, Y) in checked.items():
            if name in self._fleet.clients:
                known = self._fleet.clients[name]
                self._fleet.clients[name].learn(
                    np.concatenate((known.X, self._scaled(X))), np.concatenate((known.Y, self._read(Y)))
                )
        self._learnt(fleet.summed(self._fleet))
        for name, pair in checked.items():
            if name not in self._fleet.clients:
                self.add_client(name, *pair)
        return self

    def add_client(self, name: str, X: Array, Y: Array) -> PFedHGP:
        """A newcomer with frames X [n, D], Y [n, Q], n = 0 allowed: it learns what is its own from what the fleet knows."""
        known = self._known()
        if name in known.clients:
            raise ConfigError(name, "is already a client; partial_fit takes its further readings")
        pair = _checked(name, X, Y)
        self._agree({name: pair})
        newcomer = self._client(*pair)
        newcomer.answer(known.shared, known.belief, is_back=False, evaluations=NEWCOMER_EVALUATIONS)
        self._learnt(fleet.summed(known._replace(clients={**known.clients, name: newcomer})))
        return self

    @overload
    def predict(self, client: str, X: Array, *, return_cov: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, client: str, X: Array, *, return_cov: Literal[True]) -> tuple[Array, Array]: ...
    def predict(self, client: str, X: Array, *, return_cov: bool = False) -> Array | tuple[Array, Array]:
        """Mean [n, Q] of a client's readings at inputs X [n, D]; and their covariance [n, Q, Q], noise included."""
        members, points = self._members_of(client), self._queried(X)
        law = mixing.averaged([mixing.predict(mix, weights, points) for mix, weights in members])
        mean = self._readings.centre + self._readings.scale * law.mean
        return (mean, self._unscaled(law)) if return_cov else mean

    def layers(self, client: str, X: Array) -> tuple[Array, Array]:
        """What the shared, the deviating and the private layer each add to a prediction: means and deviations [3, n, Q].

        By the best hyperparameters alone. The means sum to the prediction's distance from the fleet's mean reading.
        """
        known = self._known()
        self._has(client)
        mix = known.clients[client].mixing(known.shared)
        means, sds = mixing.parts(mix, known.posterior(client), self._queried(X))
        return means * self._readings.scale, sds * self._readings.scale

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(sorted(self._known().clients))

    @property
    def scores(self) -> tuple[float, ...]:
        """Evidence with priors of each round of the fit, in nats."""
        return self._known().scores

    def _learnt(self, learnt: Fleet) -> None:
        self._fleet, self._members = learnt, dict[str, list[tuple[Mixing, Posterior]]]()

    def _known(self) -> Fleet:
        if self._fleet is None:
            raise ConfigError("PFedHGP", "has learnt nothing yet: call fit first")
        return self._fleet

    def _has(self, client: str) -> None:
        if client not in self._known().clients:
            raise ConfigError(client, f"is no client; there are {', '.join(self.clients)}")

    def _members_of(self, client: str) -> list[tuple[Mixing, Posterior]]:
        known = self._known()
        self._has(client)
        if client not in self._members:
            rng = np.random.default_rng(self.seed)
            self._members[client] = known.clients[client].members(known.shared, known.belief, rng)
        return self._members[client]

    def _first(self, X: Array, channels: int) -> Start:
        """Where hyperparameters start, from scaled inputs [n, D]."""
        D, root = X.shape[1], np.sqrt(X.shape[1])
        if D > placement.MOST_COLUMNS:
            raise ConfigError("X", f"has {D} inputs; a kernel takes at most {placement.MOST_COLUMNS}")
        Zg, Zi = (_places(X, count) for count in (self.inducing, self.local_inducing))
        lengths = np.full(D, root * LENGTH_G), np.full(D, root * LENGTH_I)
        return Start(
            Zg, Zi, *lengths, np.full(channels, NOISE_SD**2),
            lengthscale_sd=LENGTHSCALE_SD, noise_sd=NOISE_LOG_SD, drift=0.3, kernel=self.kernel,
        )  # fmt: skip

    def _client(self, X: Array, Y: Array) -> Client:
        own = hierarchy.own(self._start, self.ranks, self._rng)
        return Client(self._scaled(X), self._read(Y), own, self._start)

    def _agree(self, checked: Data) -> None:
        """All clients have the same inputs and channels, and those that were learnt."""
        shapes = {(X.shape[1], Y.shape[1]) for X, Y in checked.values()}
        if self._fleet is not None and hasattr(self, "_inputs"):
            shapes |= {(len(self._inputs.scale), len(self._readings.scale))}
        if len(shapes) > 1:
            raise ConfigError("data", f"clients differ in numbers of inputs and channels: {sorted(shapes)}")
        if any(not 1 <= Q <= MAX_CHANNELS for _, Q in shapes):
            raise ConfigError("data", f"there must be 1 to {MAX_CHANNELS} channels")

    def _queried(self, X: Array) -> Array:
        points = _columns("X", X)
        if points.shape[1] != len(self._inputs.scale):
            raise ConfigError("X", f"has {points.shape[1]} inputs, and {len(self._inputs.scale)} were learnt from")
        return self._scaled(_finite("X", points))

    def _scaled(self, X: Array) -> Array:
        return np.asarray((X - self._inputs.centre) / self._inputs.scale)

    def _read(self, Y: Array) -> Array:
        return np.asarray((Y - self._readings.centre) / self._readings.scale)

    def _unscaled(self, law: Law) -> Array:
        scale = self._readings.scale
        return np.asarray(law.cov * scale[:, None] * scale)


def _checked(name: str, X: Array, Y: Array) -> tuple[Array, Array]:
    X, Y = _columns(name, X), _columns(name, Y)
    if len(X) != len(Y):
        raise ConfigError(name, f"has inputs of {len(X)} frames and readings of {len(Y)}")
    if np.any(np.isinf(Y)):
        raise ConfigError(name, "has an infinite reading; a missing one is NaN")
    return _finite(name, X), Y


def _finite(name: str, X: Array) -> Array:
    if not np.all(np.isfinite(X)):
        raise ConfigError(name, "has an input that is no number")
    return X


def _columns(name: str, values: Array) -> Array:
    array = np.asarray(values, dtype=float)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ConfigError(name, f"must be a table of frames, and has {array.ndim} axes")
    return array


def _scaling(values: Array) -> Scaling:
    """Mean and standard deviation of each column over what is there; 0 and 1 of a column that is missing, 1 of a constant one."""
    seen = np.isfinite(values)
    count = np.maximum(seen.sum(axis=0), 1)
    centre = np.where(seen, values, 0.0).sum(axis=0) / count
    sd = np.sqrt((np.where(seen, values - centre, 0.0) ** 2).sum(axis=0) / count)
    return Scaling(centre, np.where(sd > 1e-12 * np.maximum(np.abs(centre), 1.0), sd, 1.0))


def _places(X: Array, count: int) -> Array:
    """Inducing inputs [M, D]: a grid of one input, of several where inputs lie."""
    if X.shape[1] > 1:
        return placement.fitted(count, X, least=1).place
    low, high = (float(X.min()), float(X.max())) if len(X) else (-1.0, 1.0)
    return np.linspace(low, high if high > low else low + 1.0, count)[:, None]
