"""What the words of the ``replay`` command ask for."""

from __future__ import annotations

import re
from argparse import Namespace
from datetime import UTC, datetime
from typing import Literal

from broker_bridge.cut import Cut, Moment
from fleetgp.errors import ConfigError
from fleetgp.runtime.link import check_filter
from fleetgp.runtime.spec import parse_span
from simulator.fault_spec import MOST_S, YEARS


def speed_of(text: str) -> float | None:
    """Of ``--speed``: recording seconds a second, None for ``max``. Raises ConfigError."""
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed <= 1e9:
        raise ConfigError("--speed", f"{text!r}: expected a number above 0, such as 1 or 60, or max")
    return speed


def cut_of(args: Namespace) -> Cut:
    """What of the recording is asked for. Raises ConfigError."""
    for pattern in args.topic:
        check_filter(pattern, "--topic")
    prefix = args.prefix
    if prefix:
        prefix = prefix if prefix.endswith("/") else prefix + "/"
        if re.search(r"[+#\s\0]", prefix) or prefix.startswith("$"):
            raise ConfigError("--prefix", f"{args.prefix!r} cannot begin a topic; expected like replay/")
    if args.loop is not None and args.loop < 0:
        raise ConfigError("--loop", f"{args.loop} is no number of times")
    return Cut(
        filters=tuple(args.topic),
        begin=moment_of(args.begin, "--from") if args.begin else None,
        end=moment_of(args.end, "--to") if args.end else None,
        prefix=prefix,
        has_own_topics=args.own_topics,
        retained=args.retained,
        shift_ns=shift_of(args.rebase) if args.rebase else None,
        loops=1 if args.loop is None else args.loop or None,
        longest_pause_ns=_span_ns(args.max_pause, "--max-pause") if args.max_pause else None,
    )


def moment_of(text: str, flag: str) -> Moment:
    """An ISO time (no zone = UTC), or +SPAN after the first message. Raises ConfigError."""
    if text.startswith("+"):
        return Moment(_span_ns(text[1:], flag), is_offset=True)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            flag, f"{text!r} is no time; expected like 2026-03-04T10:00 (UTC), or +10min after the first message"
        ) from None
    if at.year not in YEARS:
        raise ConfigError(flag, f"{text!r} is not in the years {YEARS[0]} to {YEARS[-1]}")
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Moment(round(at.timestamp() * 1e6) * 1000)


def shift_of(text: str) -> int | Literal["now"]:
    """Of ``--rebase``: ns that times are moved by, or now. Raises ConfigError."""
    if text == "now":
        return "now"
    if text[:1] not in ("+", "-"):
        raise ConfigError("--rebase", f"{text!r}: expected now, or a shift such as +1h or -2d")
    return _span_ns(text[1:], "--rebase") * (-1 if text[0] == "-" else 1)


def _span_ns(text: str, flag: str) -> int:
    seconds = parse_span(text, flag, "")
    if seconds > MOST_S:
        raise ConfigError(flag, f"{text!r} is longer than a hundred years")
    return round(seconds * 1e9)
