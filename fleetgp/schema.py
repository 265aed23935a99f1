"""What an agent watches: channels to predict, covariates to predict from, and the tick of its clock.

Agents of one fleet share one schema: the same channels, covariates, lags and interval, whatever topics they come from.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from fleetgp.errors import ConfigError

Transform = Literal["identity", "log1p"]

MAX_CHANNELS = 64
MAX_COVARIATES = 64
MAX_LAGS = 24
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
    """Channels, covariates, interval in seconds and number of lags; checked by ``check``."""

    channels: tuple[Channel, ...]
    covariates: tuple[Covariate, ...] = ()
    interval_s: float = 1.0
    lags: int = 2

    @property
    def channel_names(self) -> tuple[str, ...]:
        return tuple(channel.name for channel in self.channels)

    @property
    def inputs(self) -> tuple[Channel | Covariate, ...]:
        """Channels, then covariates: the order of a frame's values."""
        return (*self.channels, *self.covariates)

    @property
    def precision_size(self) -> int:
        """Numbers in the upper triangles of all channels' precision matrices: how a summary grows with the schema."""
        features = 1 + self.lags * len(self.channels) + len(self.covariates)
        return len(self.channels) * features * (features + 1) // 2

    @property
    def interval_ms(self) -> int:
        return max(1, round(self.interval_s * 1000))

    def signature(self) -> str:
        """What must be equal for two agents to share knowledge; topics and units may differ."""
        parts = [f"{c.name}:{c.transform}" for c in self.channels]
        parts += [f"{c.name}:{c.transform}:{'ahead' if c.known_ahead else 'lagged'}" for c in self.covariates]
        return f"{self.interval_s:g}s x{self.lags} | " + " ".join(parts)


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
    seen: set[str] = set()
    for item in schema.inputs:
        if not item.name or len(item.name) > 128:
            raise ConfigError("channels", f"a name needs 1 to 128 characters, {item.name[:20]!r} has {len(item.name)}")
        if item.name in seen:
            raise ConfigError(
                "channels", f"the name {item.name!r} stands twice; every channel and covariate needs its own"
            )
        seen.add(item.name)
    if schema.precision_size > MAX_PRECISION:
        raise ConfigError(
            "channels",
            f"{len(schema.channels)} channels with {schema.lags} lags and {len(schema.covariates)} covariates are more than "
            f"one summary can hold; fewer lags help most, or two agents that share the channels out",
        )
    return schema


def check_id(value: str, key: str) -> str:
    """Return an agent or fleet name that is safe in a topic and as a client id on every broker, or raise ConfigError."""
    if not ID_PATTERN.fullmatch(value):
        raise ConfigError(
            key, f"{value!r} is not a usable name: 1 to 64 letters, digits, '-' or '_', no spaces, dots or slashes"
        )
    return value
