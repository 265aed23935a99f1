"""pFedHGP as a library, without a broker: fit a fleet of data sets, foresee each, let newcomers in.

    model = PFedHGP().fit({"pump-1": (X1, Y1), "pump-2": (X2, Y2)})
    mean, cov = model.predict("pump-1", X, return_cov=True)

The rounds are those that a fleet plays over a broker; here they are played in one process.
"""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from fleetgp import placement
from fleetgp.arrays import Array
from fleetgp.covariances import Covariance, Stationary
from fleetgp.errors import ConfigError
from fleetgp.gp import fleet, hierarchy, intake, mixing
from fleetgp.gp.client import Client
from fleetgp.gp.fleet import Fleet
from fleetgp.gp.hierarchy import AnyKernel, Ranks, Start
from fleetgp.gp.intake import Data, Tables
from fleetgp.gp.mixing import Law, Mixing, Posterior
from fleetgp.schema import MAX_CHANNELS, MAX_INDUCING

# lengthscales of both bases at the start, in standard deviations of an input: a span is about 3.5 of these
LENGTH_G, LENGTH_I = 0.7, 0.15
# noise at the start, in standard deviations of a channel, and how far both may be off, as standard deviations of a logarithm
NOISE_SD = 0.1
LENGTHSCALE_SD, NOISE_LOG_SD = 1.0, 2.0
# of a newcomer, who learns while the fleet stays as it is
NEWCOMER_EVALUATIONS = 60
BOTH = Ranks()
OPTIONS = ("ranks", "inducing", "local_inducing", "kernel", "local_kernel", "rounds", "seed")


class PFedHGP:
    """A fleet of clients with a shared, a deviating and a private layer each (docs/model.md, "With loadings").

    ranks: latent functions of the three layers, 0 switches one off. inducing, local_inducing: inducing inputs of the shared and
    of each client's own basis, at most 200. kernel: of the shared functions and the deviation, a word or a composed covariance
    (``fleetgp.covariances``) in the unit of the inputs, whose parameters are where learning starts; local_kernel: of the private
    functions, by default the same word, or ``se``. rounds: of learning hyperparameters. seed: of first loadings and of draws.
    """

    def __init__(
        self,
        ranks: tuple[int, int, int] = BOTH,
        *,
        inducing: int = 25,
        local_inducing: int = 25,
        kernel: AnyKernel = "se",
        local_kernel: AnyKernel | None = None,
        rounds: int = fleet.ROUNDS,
        seed: int = 0,
    ) -> None:
        self.ranks, self.kernel, self.local_kernel, self.rounds, self.seed = ranks, kernel, local_kernel, rounds, seed
        self.inducing, self.local_inducing = inducing, local_inducing
        self._check_options()
        self._fleet: Fleet | None = None

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"PFedHGP({told})"

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """The options by name, as scikit-learn has it; none of them has options of its own."""
        return {name: getattr(self, name) for name in OPTIONS}

    def set_params(self, **options: object) -> PFedHGP:
        """Other options, which the next ``fit`` uses. Raises ConfigError where one is unknown or cannot be."""
        for name, value in options.items():
            if name not in OPTIONS:
                raise ConfigError(name, f"is no option; there are {', '.join(OPTIONS)}")
            setattr(self, name, value)
        self._check_options()
        return self

    def fit(self, data: Data) -> PFedHGP:
        """Learn everything from inputs X [n, D] and readings Y [n, Q] of each client; NaN in Y is a missing reading.

        Vectors are taken as one column. Raises ConfigError where shapes do not agree or an input is no number.
        """
        if not data:
            raise ConfigError("data", "there is no client to learn from")
        checked, self._fleet = intake.tables(data), None
        self._agree(checked)
        X = np.concatenate([pair[0] for pair in checked.values()])
        Y = np.concatenate([pair[1] for pair in checked.values()])
        if not len(X):
            raise ConfigError("data", "no client has a frame: there is nothing to learn from")
        self._inputs, self._readings = intake.scaling(X), intake.scaling(Y)
        self._start = self._first(self._scaled(X), Y.shape[1])
        self._rng = np.random.default_rng(self.seed)
        shared = hierarchy.shared(self._start, Ranks(*self.ranks), self._rng)
        clients = {name: self._client(*pair) for name, pair in checked.items()}
        self._learnt(fleet.learn(clients, shared, self._start, self.rounds))
        return self

    def partial_fit(self, data: Data) -> PFedHGP:
        """Further frames of clients, new ones among them; hyperparameters of those that are known stay. One round, exact."""
        if self._fleet is None:
            return self.fit(data)
        checked = intake.tables(data)
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

    def add_client(self, name: str, X: ArrayLike, Y: ArrayLike) -> PFedHGP:
        """A newcomer with frames X [n, D], Y [n, Q], n = 0 allowed: it learns what is its own from what the fleet knows."""
        known = self._known()
        if name in known.clients:
            raise ConfigError(name, "is already a client; partial_fit takes its further readings")
        pair = intake.table(name, X, Y)
        self._agree({name: pair})
        newcomer = self._client(*pair)
        newcomer.answer(known.shared, known.belief, is_back=False, evaluations=NEWCOMER_EVALUATIONS)
        self._learnt(fleet.summed(known._replace(clients={**known.clients, name: newcomer})))
        return self

    @overload
    def predict(self, client: str, X: ArrayLike, *, return_cov: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, client: str, X: ArrayLike, *, return_cov: Literal[True]) -> tuple[Array, Array]: ...
    def predict(self, client: str, X: ArrayLike, *, return_cov: bool = False) -> Array | tuple[Array, Array]:
        """Mean [n, Q] of a client's readings at inputs X [n, D]; and their covariance [n, Q, Q], noise included."""
        members, points = self._members_of(client), self._queried(X)
        law = mixing.averaged([mixing.predict(mix, weights, points) for mix, weights in members])
        mean = self._readings.centre + self._readings.scale * law.mean
        return (mean, self._unscaled(law)) if return_cov else mean

    def layers(self, client: str, X: ArrayLike) -> tuple[Array, Array]:
        """What the shared, the deviating and the private layer each add to a prediction: means and deviations [3, n, Q].

        By the best hyperparameters alone. The means sum to the prediction's distance from the fleet's mean reading.
        """
        known = self._known()
        self._has(client)
        mix = known.clients[client].mixing(known.shared)
        means, sds = mixing.parts(mix, known.posterior(client), self._queried(X))
        return means * self._readings.scale, sds * self._readings.scale

    def score(self, client: str, X: ArrayLike, Y: ArrayLike) -> float:
        """R^2 of a client's predicted means for readings Y [n, Q], as scikit-learn's regressors have it: 1 minus the squared
        errors over the squared distances from the mean reading, averaged over channels. Missing readings do not count, nor do
        channels without two different ones; NaN where none is left."""
        inputs, readings = self._compared(client, X, Y)
        error = np.nansum((readings - self.predict(client, inputs)) ** 2, axis=0)
        seen = np.isfinite(readings)
        centre = np.nansum(readings, axis=0) / np.maximum(seen.sum(axis=0), 1)
        spread = np.nansum((readings - centre) ** 2, axis=0)
        return float(np.mean(1 - error[spread > 0] / spread[spread > 0])) if np.any(spread > 0) else float("nan")

    def log_density(self, client: str, X: ArrayLike, Y: ArrayLike) -> float:
        """Mean log density of readings Y [n, Q] under each one's own law, in nats a reading that is there; NaN without one."""
        inputs, readings = self._compared(client, X, Y)
        mean, cov = self.predict(client, inputs, return_cov=True)
        variance = np.diagonal(cov, axis1=1, axis2=2)
        told = -0.5 * (np.log(2 * np.pi * variance) + (readings - mean) ** 2 / variance)
        return float(np.mean(told[np.isfinite(readings)])) if np.any(np.isfinite(readings)) else float("nan")

    def learnt_kernel(self, client: str | None = None) -> Covariance:
        """The kernel with its learnt parameters, in the unit of the inputs: of the shared functions, or of a client's private ones."""
        known = self._known()
        if client is not None:
            self._has(client)
        values = known.shared.log_lengthscale if client is None else known.clients[client].own.log_lengthscale
        kernel = self._start.kernels[int(client is not None)]
        if isinstance(kernel, str):
            return Stationary(kernel, tuple(range(len(values))), np.exp(values) * self._inputs.scale)
        return kernel.at(values).stretched(1 / self._inputs.scale)

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
        kernel, length_g = self._stretched("kernel", self.kernel, np.full(D, root * LENGTH_G))
        local = self.local_kernel or (self.kernel if isinstance(self.kernel, str) else "se")
        local, length_i = self._stretched("local_kernel", local, np.full(D, root * LENGTH_I))
        Zg = intake.places(X, self.inducing, is_even=isinstance(kernel, str))
        Zi = intake.places(X, self.local_inducing, is_even=isinstance(local, str))
        return Start(
            Zg, Zi, length_g, length_i, np.full(channels, NOISE_SD**2),
            lengthscale_sd=LENGTHSCALE_SD, noise_sd=NOISE_LOG_SD, drift=0.3, kernel=kernel, local_kernel=local,
        )  # fmt: skip

    def _stretched(self, name: str, kernel: AnyKernel, lengthscale: Array) -> tuple[AnyKernel, Array]:
        """A kernel of scaled inputs, and its first parameters: of a word these lengthscales [D], else its own [P]."""
        if isinstance(kernel, str):
            return kernel, lengthscale
        if kernel.reach > len(lengthscale):
            raise ConfigError(name, f"looks at input {kernel.reach - 1}, and the last one is {len(lengthscale) - 1}")
        kernel = kernel.stretched(self._inputs.scale)
        return kernel, np.exp(kernel.values)

    def _client(self, X: Array, Y: Array) -> Client:
        own = hierarchy.own(self._start, Ranks(*self.ranks), self._rng)
        return Client(self._scaled(X), self._read(Y), own, self._start)

    def _check_options(self) -> None:
        """Raises ConfigError where an option cannot be."""
        intake.check_ranks(self.ranks)
        for name in ("inducing", "local_inducing"):
            intake.check_whole(name, getattr(self, name), 1, MAX_INDUCING)
        intake.check_whole("rounds", self.rounds, 1)
        intake.check_whole("seed", self.seed, 0)
        intake.check_kernel("kernel", self.kernel)
        if self.local_kernel is not None:
            intake.check_kernel("local_kernel", self.local_kernel)

    def _agree(self, checked: Tables) -> None:
        """All clients have the same inputs and channels, and those that were learnt."""
        shapes = {(X.shape[1], Y.shape[1]) for X, Y in checked.values()}
        if self._fleet is not None:
            shapes |= {(len(self._inputs.scale), len(self._readings.scale))}
        if len(shapes) > 1:
            raise ConfigError("data", f"clients differ in numbers of inputs and channels: {sorted(shapes)}")
        if any(D == 0 for D, _ in shapes):
            raise ConfigError("data", "frames have no input")
        if any(not 1 <= Q <= MAX_CHANNELS for _, Q in shapes):
            raise ConfigError("data", f"there must be 1 to {MAX_CHANNELS} channels")

    def _compared(self, client: str, X: ArrayLike, Y: ArrayLike) -> tuple[Array, Array]:
        """Inputs [n, D] and readings [n, Q] of a client that is there."""
        self._has(client)
        inputs, readings = intake.table(client, X, Y)
        if readings.shape[1] != len(self._readings.scale):
            raise ConfigError(
                "Y", f"has {readings.shape[1]} channels, and {len(self._readings.scale)} were learnt from"
            )
        return inputs, readings

    def _queried(self, X: ArrayLike) -> Array:
        points = intake.columns("X", X)
        if points.shape[1] != len(self._inputs.scale):
            raise ConfigError("X", f"has {points.shape[1]} inputs, and {len(self._inputs.scale)} were learnt from")
        return self._scaled(intake.finite("X", points))

    def _scaled(self, X: Array) -> Array:
        return np.asarray((X - self._inputs.centre) / self._inputs.scale)

    def _read(self, Y: Array) -> Array:
        return np.asarray((Y - self._readings.centre) / self._readings.scale)

    def _unscaled(self, law: Law) -> Array:
        scale = self._readings.scale
        return np.asarray(law.cov * scale[:, None] * scale)
