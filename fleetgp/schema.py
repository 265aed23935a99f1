"""What an agent watches: channels to predict, covariates to predict from, and the tick of its clock.

Agents of one fleet share one schema: the same channels, covariates, lags and interval, whatever topics they come from.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from fleetgp.errors import ConfigError

Transform = Literal["identity", "log1p"]
Kernel = Literal["se", "matern32", "matern52"]
Mixing = Literal["independent", "ilmm"]
Ranks = tuple[int, int, int]

MAX_CHANNELS = 64
MAX_COVARIATES = 64
MAX_LAGS = 24
MAX_PHASES = 4
MAX_HARMONICS = 12
MAX_INDUCING = 200
LEAST_MIXED_INDUCING = 4
# weights of one agent that the mixing layers may have together: what one step can solve for
MAX_MIXED = 600
# Numbers in the precision of all channels' weights: what a summary and a fleet's model can hold on the wire.
MAX_PRECISION = 680_000
ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Channel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One quantity that an agent predicts.

    topic: MQTT topic it arrives on ("" = the agent's default topic). field: name inside a JSON payload
    ("" = the channel's own name; payloads that are one plain number need none). transform: applied before learning.
    """

    name: str
    unit: str = ""
    transform: Transform = "identity"
    topic: str = ""
    field: str = ""


class Covariate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One quantity that an agent predicts from, but does not predict.

    known_ahead: its value at the frame itself is known before the frame (a set point, a calendar entry);
    otherwise only its value one step earlier is used.
    """

    name: str
    unit: str = ""
    transform: Transform = "identity"
    topic: str = ""
    field: str = ""
    known_ahead: bool = False


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """Channels, covariates, interval in seconds and what a prediction is made of; checked by ``check``.

    lags: steps back. phases: periods in seconds that the calendar repeats in (86,400 = the day); harmonics: sines and
    cosines of each. inducing: number of inducing inputs of the nonlinear part, 0 = none; kernel: its covariance function.
    mixing: whether channels are predicted each for itself from what came before, or together from a position, mixed from a
    few latent functions of it ("ilmm"). position: the covariate that says where in its cycle a machine is; "" = where in
    ``phases[0]`` the clock stands; position_period: where it begins anew (360 of an angle), 0 = its ends are not joined. ranks: numbers of latent functions that are shared, of an agent's deviation, and its own.
    """

    channels: tuple[Channel, ...]
    covariates: tuple[Covariate, ...] = ()
    interval_s: float = 1.0
    lags: int = 2
    phases: tuple[float, ...] = ()
    harmonics: int = 3
    inducing: int = 0
    kernel: Kernel = "se"
    mixing: Mixing = "independent"
    position: str = ""
    position_period: float = 0.0
    ranks: Ranks = (2, 2, 2)

    @property
    def is_mixed(self) -> bool:
        return self.mixing == "ilmm"

    @property
    def cycle_s(self) -> float | None:
        """Seconds of the cycle that a position is taken from; None where there is none."""
        return self.phases[0] if self.is_mixed and not self.position else None

    @property
    def channel_names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    @property
    def inputs(self) -> tuple[Channel | Covariate, ...]:
        """Channels, then covariates: the order of a frame's values."""
        return (*self.channels, *self.covariates)

    @property
    def feature_count(self) -> int:
        """Features at most: those of the shared latent functions; or bias, lags, covariates, waves of the phases, one more for each input, inducing inputs."""
        if self.is_mixed:
            return self.ranks[0] * self.inducing
        Q, C = len(self.channels), len(self.covariates)
        return 1 + self.lags * Q + C + 2 * self.harmonics * len(self.phases) + (Q + C) + self.inducing

    @property
    def precision_size(self) -> int:
        """Numbers in the upper triangles of all channels' precision matrices: how a summary grows with the schema."""
        return (1 if self.is_mixed else len(self.channels)) * self.feature_count * (self.feature_count + 1) // 2

    @property
    def interval_ms(self) -> int:
        return max(1, round(self.interval_s * 1000))

    def signature(self) -> str:
        """What must be equal for two agents to share knowledge; topics and units may differ."""
        parts = [f"{c.name}:{c.transform}" for c in self.channels]
        parts += [f"{c.name}:{c.transform}:{'ahead' if c.known_ahead else 'lagged'}" for c in self.covariates]
        more = "".join(f" {period:g}s/{self.harmonics}" for period in self.phases)
        more += f" {self.kernel}{self.inducing}" if self.inducing else ""
        more += f" ilmm {'/'.join(map(str, self.ranks))} {self.position}".rstrip() if self.is_mixed else ""
        more += f" of {self.position_period:g}" if self.position_period else ""
        return f"{self.interval_s:g}s x{self.lags}{more} | " + " ".join(parts)


def check(schema: Schema) -> Schema:
    """Return the schema, or raise ConfigError naming what is wrong with it."""
    if not 1 <= len(schema.channels) <= MAX_CHANNELS:
        raise ConfigError("channels", f"needs 1 to {MAX_CHANNELS} channels, has {len(schema.channels)}")
    if len(schema.covariates) > MAX_COVARIATES:
        raise ConfigError("covariates", f"at most {MAX_COVARIATES}, has {len(schema.covariates)}")
    if not 1 <= schema.lags <= MAX_LAGS:
        raise ConfigError("stream.lags", f"needs a whole number from 1 to {MAX_LAGS}, is {schema.lags}")
    if not 0.001 <= schema.interval_s <= 366 * 86400:
        raise ConfigError("stream.interval", f"needs 1 ms to 1 year, is {schema.interval_s} s")
    if len(schema.phases) > MAX_PHASES or len(set(schema.phases)) < len(schema.phases):
        raise ConfigError("stream.phases", f"at most {MAX_PHASES} different periods, has {len(schema.phases)}")
    for period in schema.phases:
        if not 2 * schema.interval_s <= period <= 366 * 86400:
            key = "stream.cycle" if schema.is_mixed else "stream.phases"
            raise ConfigError(key, f"a period needs two intervals to one year, {period:g} s is not")
    if not 1 <= schema.harmonics <= MAX_HARMONICS:
        raise ConfigError("stream.harmonics", f"needs a whole number from 1 to {MAX_HARMONICS}, is {schema.harmonics}")
    if not 0 <= schema.inducing <= MAX_INDUCING:
        raise ConfigError("stream.inducing", f"needs a whole number from 0 to {MAX_INDUCING}, is {schema.inducing}")
    seen: set[str] = set()
    for item in schema.inputs:
        if not item.name or len(item.name) > 128:
            raise ConfigError("channels", f"a name needs 1 to 128 characters, {item.name[:20]!r} has {len(item.name)}")
        if item.name in seen:
            raise ConfigError(
                "channels", f"the name {item.name!r} stands twice; every channel and covariate needs its own"
            )
        seen.add(item.name)
    if schema.is_mixed:
        _check_mixed(schema)
    if schema.precision_size > MAX_PRECISION:
        raise ConfigError(
            "channels",
            f"{len(schema.channels)} channels with {schema.lags} lags and {len(schema.covariates)} covariates are more than "
            f"one summary can hold; fewer lags help most, or two agents that share the channels out",
        )
    return schema


def _check_mixed(schema: Schema) -> None:
    """Raise ConfigError where a schema of mixed channels has no position, or too many latent functions."""
    Q = len(schema.channels)
    if any(not 0 <= rank <= Q for rank in schema.ranks):
        shown = ", ".join(map(str, schema.ranks))
        raise ConfigError("stream.ranks", f"needs three whole numbers from 0 to the {Q} channels, is [{shown}]")
    if not schema.ranks[0] and not any(schema.ranks[1:]):
        raise ConfigError("stream.ranks", "are all 0: there is nothing to learn")
    positions = {covariate.name: covariate for covariate in schema.covariates}
    if schema.position:
        if schema.position not in positions:
            known = ", ".join(positions) or "none"
            raise ConfigError("stream.position", f"{schema.position!r} is no covariate; covariates: {known}")
        covariate = positions.pop(schema.position)
        if not covariate.known_ahead:
            raise ConfigError(
                f"covariates.{schema.position}",
                "a position needs known_ahead = true: its value is known before the frame",
            )
        _check_period(schema, covariate)
    elif schema.position_period:
        raise ConfigError("stream.position_period", "has no position; name one, or give the clock's as cycle")
    elif not schema.phases:
        raise ConfigError(
            "stream.cycle", 'mixing = "ilmm" needs a position: cycle = "60s", or position = "name of a covariate"'
        )
    if positions:
        raise ConfigError(
            f"covariates.{next(iter(positions))}",
            'is of no use with mixing = "ilmm", which looks at the position alone',
        )
    if schema.inducing < LEAST_MIXED_INDUCING:
        raise ConfigError(
            "stream.inducing", f'mixing = "ilmm" needs {LEAST_MIXED_INDUCING} or more, is {schema.inducing}'
        )
    if sum(schema.ranks) * schema.inducing > MAX_MIXED:
        raise ConfigError(
            "stream.ranks",
            f"{sum(schema.ranks)} latent functions of {schema.inducing} inducing inputs are more than "
            f"{MAX_MIXED} weights; lower ranks or fewer inducing inputs",
        )


def _check_period(schema: Schema, position: Covariate) -> None:
    period = schema.position_period
    if not 0.0 <= period < math.inf:
        raise ConfigError("stream.position_period", f"needs a number above 0, such as 360 of degrees, is {period:g}")
    if period and position.transform != "identity":
        raise ConfigError(
            "stream.position_period", f"{position.name} is learnt as its {position.transform}, which repeats nowhere"
        )


def check_id(value: str, key: str) -> str:
    """Return an agent or fleet name that is safe in a topic and as a client id on every broker, or raise ConfigError."""
    if not ID_PATTERN.fullmatch(value):
        raise ConfigError(
            key, f"{value!r} is not a usable name: 1 to 64 letters, digits, '-' or '_', no spaces, dots or slashes"
        )
    return value
