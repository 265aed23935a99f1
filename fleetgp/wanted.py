"""What an owner said of a stream, and what that leaves open.

A settings file or a recording's spec names inputs and perhaps some keys of ``[stream]``. What is missing is chosen from
the first readings (``defaults``) or taken from the fleet, whose agents must all end with one schema.
"""

from __future__ import annotations

import msgspec

from fleetgp.errors import ConfigError
from fleetgp.schema import Channel, Covariate, Kernel, Mixing, Ranks, Schema, check

HARMONICS = 3
KERNEL: Kernel = "se"
# of a position on a circle or a range: as narrow as a sixteenth of it can be told
MIXED_INDUCING = 20

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The owner's own words; None or no channels = left open. Fields and units as in ``Schema``."""

    channels: tuple[Channel, ...] = ()
    covariates: tuple[Covariate, ...] = ()
    interval_s: float | None = None
    lags: int | None = None
    phases: tuple[float, ...] | None = None
    harmonics: int | None = None
    inducing: int | None = None
    kernel: Kernel | None = None
    mixing: Mixing | None = None
    position: str | None = None
    position_period: float | None = None
    ranks: Ranks | None = None

    @property
    def inputs(self) -> tuple[Channel | Covariate, ...]:
        """Channels, then covariates."""
        return (*self.channels, *self.covariates)

    @property
    def open(self) -> tuple[str, ...]:
        """What must be chosen before anything can be learnt; harmonics and kernel are constants where not given."""
        given = {
            "channels": self.channels or None,
            "interval": self.interval_s,
            "lags": self.lags,
            "phases": self.phases,
            "inducing": self.inducing,
        }
        return tuple(key for key, value in given.items() if value is None)

    def schema(self) -> Schema:
        """What was said, where that is all. Raises ConfigError naming the first thing that is left open."""
        if not self.channels:
            raise ConfigError("channels", "none is given; name at least one")
        if self.open:
            left = ", ".join(self.open)
            raise ConfigError(f"stream.{self.open[0]}", f"not given ({left} left open), and there are no readings yet")
        return self.filled(Schema(channels=self.channels))

    def filled(self, rest: Schema) -> Schema:
        """What was said, and of another schema what was not. Raises ConfigError where the two make no schema."""
        channels = self.channels or rest.channels
        mixing = rest.mixing if self.mixing is None else self.mixing
        # of no meaning, and then the same for all, where channels are not mixed
        ranks = _capped(rest.ranks, len(channels)) if mixing == "ilmm" else rest.ranks
        return check(
            Schema(
                channels=channels,
                covariates=self.covariates if self.channels else rest.covariates,
                interval_s=rest.interval_s if self.interval_s is None else self.interval_s,
                lags=rest.lags if self.lags is None else self.lags,
                phases=rest.phases if self.phases is None else self.phases,
                harmonics=rest.harmonics if self.harmonics is None else self.harmonics,
                inducing=rest.inducing if self.inducing is None else self.inducing,
                kernel=rest.kernel if self.kernel is None else self.kernel,
                mixing=mixing,
                position=rest.position if self.position is None else self.position,
                position_period=rest.position_period if self.position_period is None else self.position_period,
                ranks=self.ranks or ranks,
            )
        )

    def checked(self) -> Wanted:
        """The same, or ConfigError where what was said can be part of no schema. Names no channel: only keys are checked."""
        # what is open is put so that it contradicts nothing: a tick so short that every period fits
        most = max(self.ranks or (1,))
        probe = Schema(channels=tuple(Channel(name=f"any {k}") for k in range(max(most, 1))), interval_s=0.001, lags=1)
        if self.position and not self.channels:
            probe = msgspec.structs.replace(probe, covariates=(Covariate(name=self.position, known_ahead=True),))
        self.filled(probe)
        return self

    def contradiction(self, other: Schema) -> str:
        """Where another schema says something else than the owner, in plain words; "" where it does not."""
        return (self._other_inputs(other) if self.channels else "") or self._other_keys(other)

    def as_in(self, other: Schema) -> Schema:
        """Another schema that contradicts nothing, with the owner's topics, fields and units and the other's order."""
        if not self.channels:
            return check(other)
        channels = {item.name: item for item in self.channels}
        covariates = {item.name: item for item in self.covariates}
        return check(
            msgspec.structs.replace(
                other,
                channels=tuple(channels[item.name] for item in other.channels),
                covariates=tuple(covariates[item.name] for item in other.covariates),
            )
        )

    def _other_inputs(self, other: Schema) -> str:
        for word, own, theirs in (
            ("channels", self.channels, other.channels),
            ("covariates", self.covariates, other.covariates),
        ):
            mine, others = {item.name: item for item in own}, {item.name: item for item in theirs}
            if mine.keys() != others.keys():
                return f"it has the {word} {_names(others)}, the settings {_names(mine)}"
            for name, item in mine.items():
                if _kind(item) != _kind(others[name]):
                    return f"it takes {name} as {_kind(others[name])}, the settings as {_kind(item)}"
        return ""

    def _other_keys(self, other: Schema) -> str:
        said: tuple[tuple[str, object, object], ...] = (
            ("interval", _span_or_none(self.interval_s), span(other.interval_s)),
            ("lags", self.lags, other.lags),
            ("phases", None if self.phases is None else _spans(self.phases), _spans(other.phases)),
            # harmonics of no phase and the kernel of no inducing inputs are no part of a schema's meaning
            ("harmonics", self.harmonics if other.phases else None, other.harmonics),
            ("inducing", self.inducing, other.inducing),
            ("kernel", self.kernel if other.inducing else None, other.kernel),
            ("mixing", self.mixing, other.mixing),
            ("position", self.position, other.position),
            ("position_period", self.position_period, other.position_period),
            ("ranks", self.ranks if other.is_mixed else None, other.ranks),
        )
        for key, own, theirs in said:
            if own is not None and own != theirs:
                return f"it has {key} {theirs}, the settings say {own}"
        return ""


def mixed(said: Wanted, cycle_s: float | None) -> Wanted:
    """What an owner says who wants channels mixed at the position in a cycle, or at that which said.position names.

    A position leaves nothing to choose of lags, phases and inducing inputs. Raises ConfigError where the owner said of them
    what is of no use, or named no position or two.
    """
    if cycle_s and said.position:
        raise ConfigError("stream.position", "stands beside cycle; keep one of the two")
    phases = (cycle_s,) if cycle_s else ()
    for key, own, only in (
        ("lags", said.lags, 1), ("phases", said.phases, phases), ("harmonics", said.harmonics, 1)
    ):  # fmt: skip
        if own not in (None, only):
            raise ConfigError(f"stream.{key}", 'is of no use with mixing = "ilmm", which looks at the position alone')
    return msgspec.structs.replace(
        said,
        lags=1,
        phases=phases,
        harmonics=1,
        inducing=MIXED_INDUCING if said.inducing is None else said.inducing,
        position=said.position or "",
        position_period=said.position_period or 0.0,
    )


def wanted(schema: Schema) -> Wanted:
    """A whole schema as an owner's words: nothing is left open."""
    return Wanted(**{name: getattr(schema, name) for name in Wanted.__struct_fields__})


def span(seconds: float) -> str:
    """``1h``, ``5min``, ``500ms``: as settings are written, in the largest unit that makes it short."""
    for size, unit in _UNITS:
        if seconds >= size and abs(seconds / size - round(seconds / size)) < 1e-6:
            return f"{round(seconds / size)}{unit}"
    return f"{seconds:g}s"


def _capped(ranks: Ranks, channels: int) -> Ranks:
    """No more latent functions than channels."""
    shared, deviation, local = (min(rank, channels) for rank in ranks)
    return shared, deviation, local


def _span_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else span(seconds)


def _spans(seconds: tuple[float, ...]) -> str:
    return ", ".join(span(one) for one in seconds) or "none"


def _names(items: dict[str, Channel | Covariate]) -> str:
    return ", ".join(list(items)[:8]) + (", ..." if len(items) > 8 else "") or "none"


def _kind(item: Channel | Covariate) -> str:
    is_ahead = isinstance(item, Covariate) and item.known_ahead
    return item.transform + (", known ahead" if is_ahead else "")
