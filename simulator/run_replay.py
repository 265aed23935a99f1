"""From the ``replay`` command's arguments to messages on a broker and a report of how it went."""

from __future__ import annotations

import os
import re
import sys
import threading
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from broker_bridge.replay import Player
from broker_bridge.run_record import write_json
from broker_bridge.screen import Screen, size, span
from broker_bridge.timeline import OWN, Cut, Due, Moment, Timeline
from fleetgp.errors import ConfigError, FleetError, ServiceError
from fleetgp.recording import spec
from fleetgp.recording.message import Gap, Recorded
from fleetgp.runtime.arguments import from_arguments
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.link import check_filter
from fleetgp.runtime.logs import make_log
from fleetgp.runtime.mqtt import Session, SessionConfig
from fleetgp.runtime.program import broker_link, stop_on_signals
from fleetgp.runtime.settings import Settings
from fleetgp.runtime.spec import parse_span
from simulator.sources import Sources

CONNECT_S = 10.0
STEP_S = 0.1
PART_S = 1.0


def run_replay(args: Namespace) -> int:
    """0 when all was played and the broker took it (or an endless loop was stopped), else 1. Raises FleetError in plain words
    where it cannot run."""
    speed, cut = speed_of(args.speed), cut_of(args)
    described = spec.load(args.spec) if args.spec else None
    settings = from_arguments(args, os.environ)
    stop = threading.Event()
    stop_on_signals(stop)
    clock = SystemClock()
    screen = Screen(clock)
    sources = Sources(args.files, described, screen.say)
    read, truth = _with_faults(args, sources.read)
    timeline = Timeline(read, cut, now_ns=clock.now_ns, on_gap=lambda gap: screen.say(_gap(gap)))
    session = _session(settings, clock, screen)
    session.start()
    try:
        _connect(session, settings, stop)
        show = _Progress(screen, timeline, sources.last_ns, clock.monotonic_s())
        player = Player(session.lane, clock, stop.wait, speed=speed, say=screen.say, watch=show.watch)
        show.player = player
        report = _play(player, timeline, clock)
    finally:
        session.stop(timeout_s=PART_S)
    report |= {"speed": args.speed, "damaged": sources.damages, "truth": truth() if truth else None}
    report["refused"] += session.counters().get("refused_by_broker", 0)
    report["content_types_dropped"] = timeline.typed if settings.text("mqtt.version") != "5" else 0
    print(_summary(report, args), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(report, args.json)
    if report["trouble"]:
        raise ServiceError(f"the replay ended early: {report['trouble']}")
    is_early = report["stopped"] and cut.loops is not None
    return 1 if is_early or report["unconfirmed"] or report["refused"] or sources.damages or not report["sent"] else 0


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
    )


def moment_of(text: str, flag: str) -> Moment:
    """An ISO time (no zone = UTC), or +SPAN after the first message. Raises ConfigError."""
    if text.startswith("+"):
        return Moment(round(parse_span(text[1:], flag, "") * 1e9), is_offset=True)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            flag, f"{text!r} is no time; expected like 2026-03-04T10:00 (UTC), or +10min after the first message"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Moment(round(at.timestamp() * 1e6) * 1000)


def shift_of(text: str) -> int | Literal["now"]:
    """Of ``--rebase``: ns that times are moved by, or now. Raises ConfigError."""
    if text == "now":
        return "now"
    if text[:1] not in ("+", "-"):
        raise ConfigError("--rebase", f"{text!r}: expected now, or a shift such as +1h or -2d")
    return round(parse_span(text[1:], "--rebase", "") * 1e9) * (-1 if text[0] == "-" else 1)


def _with_faults(
    args: Namespace, read: Callable[[], Iterator[Recorded]]
) -> tuple[Callable[[], Iterator[Recorded]], Callable[[], Any] | None]:
    """The recording with the faults that were asked for, and what tells the truth about them at the end."""
    if args.inject:
        raise ConfigError("--inject", "faults cannot be put in yet")
    return read, None


def _session(settings: Settings, clock: SystemClock, screen: Screen) -> Session:
    config = SessionConfig(
        client_id=f"fleetgp-replay-{os.getpid()}-{uuid.uuid4().hex[:6]}",
        keepalive_s=settings.whole("mqtt.keepalive_s"),
        version=settings.text("mqtt.version"),
    )
    log = make_log("replay", settings.text("logs.form"), settings.text("logs.level"), stream=screen)  # type: ignore[arg-type]
    return Session(broker_link(settings), config, clock=clock, log=log)


def _connect(session: Session, settings: Settings, stop: threading.Event) -> None:
    by_s = SystemClock().monotonic_s() + CONNECT_S
    while not session.wait_connected(STEP_S):
        if stop.is_set():
            raise ServiceError("stopped before a broker was found; nothing was played")
        if SystemClock().monotonic_s() > by_s:
            link = broker_link(settings)
            where = f"{link.host}:{link.port}"
            raise ServiceError(f"no connection to the broker at {where} within {CONNECT_S:.0f} s; nothing played")


def _play(player: Player, timeline: Timeline, clock: SystemClock) -> dict[str, Any]:
    begin_s = clock.monotonic_s()
    trouble = ""
    try:
        player.play(timeline)
    except FleetError as err:
        trouble = str(err)
    sent_s = clock.monotonic_s() - begin_s
    unconfirmed = player.confirm()
    seconds = clock.monotonic_s() - begin_s
    return {
        "sent": player.sent,
        "unconfirmed": unconfirmed,
        "refused": player.refused,
        "resent": player.resent,
        "bytes": player.bytes,
        "seconds": round(sent_s, 3),
        "messages_per_s": round(player.sent / seconds, 1) if seconds else 0.0,
        "late": player.lateness.figures(),
        "broker_away_s": round(player.away_s, 3),
        "first": iso(timeline.first_ns),
        "last": iso(timeline.last_ns),
        "loops": timeline.loop,
        "retained": timeline.retained,
        "left_out": dict(timeline.left_out),
        "gaps": [gap._asdict() for gap in timeline.gaps],
        "stopped": player.is_stopped,
        "trouble": trouble,
    }


@dataclass
class _Progress:
    """How far a replay is, told to the screen."""

    screen: Screen
    timeline: Timeline
    last_ns: int
    begin_s: float
    player: Player | None = None

    def watch(self, due: Due) -> None:
        if self.screen.is_due and self.player is not None:
            self.screen.show(self._line(due, self.player))

    def _line(self, due: Due, player: Player) -> str:
        first_ns = self.timeline.first_ns or due.at_ns
        share = (due.at_ns - first_ns) / (self.last_ns - first_ns) if self.last_ns > first_ns else None
        bar = "" if share is None else f"[{'#' * round(20 * share):<20}] {100 * share:3.0f} %  "
        late = f"  late p99 {player.lateness.percentile(0.99):.1f} ms" if player.lateness.count else ""
        loop = f"  loop {self.timeline.loop}" if self.timeline.loop > 1 else ""
        passed_s = SystemClock().monotonic_s() - self.begin_s
        rate = player.sent / passed_s if passed_s > 0 else 0.0
        return f"{bar}{iso(due.at_ns)}  {player.sent:,} messages  {rate:,.0f}/s{late}{loop}"


def iso(at_ns: int | None) -> str:
    """A time for people, to the second."""
    if at_ns is None:
        return ""
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")


def _gap(gap: Gap) -> str:
    return f"the recording has a gap of {span((gap.end_ns - gap.start_ns) / 1e9)} at {iso(gap.start_ns)}: {gap.why}"


def _summary(report: dict[str, Any], args: Namespace) -> str:
    late = report["late"]
    lines = [
        f"{report['sent']:,} messages ({size(report['bytes'])}) in {span(report['seconds'])}, "
        f"{report['messages_per_s']:,.0f}/s, of {report['first'] or 'no time'} to {report['last'] or 'no time'}",
        f"unconfirmed: {report['unconfirmed']}   sent again: {report['resent']}   refused: {report['refused']}   "
        f"gaps in the recording: {len(report['gaps'])}",
    ]
    if late["count"]:
        lines.append(f"late: p50 {late['p50_ms']:.2f} ms, p99 {late['p99_ms']:.2f} ms, most {late['max_ms']:.2f} ms")
    if report["broker_away_s"]:
        lines.append(f"the broker was away for {span(report['broker_away_s'])}")
    if report["retained"] and args.retained == "keep":
        lines.append(
            f"{report['retained']} messages are retained again: the broker keeps them (--retained plain, or skip)"
        )
    if report["content_types_dropped"]:
        lines.append(f"{report['content_types_dropped']} content types were not sent: that needs --set mqtt.version=5")
    for reason, number in report["left_out"].items():
        hint = " (--own-topics plays them, in the name of programs that may be running)" if reason == OWN else ""
        lines.append(f"left out: {number:,} {'on ' if 'topics' in reason else ''}{reason}{hint}")
    lines += [f"damaged: {words}" for words in report["damaged"]]
    if report["stopped"]:
        lines.append("stopped before the end")
    if not report["sent"] and not report["trouble"]:
        lines.append("nothing was played: no message of these files is on the topics and times asked for")
    return "\n".join(lines)
