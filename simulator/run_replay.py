"""From the ``replay`` command's arguments to messages on a broker and a report of how it went."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from broker_bridge.connecting import wait_for_broker
from broker_bridge.replay import Player
from broker_bridge.run_record import write_json
from broker_bridge.screen import Screen
from broker_bridge.selection import EARLIER, Read
from broker_bridge.timeline import Change, Timeline
from fleetgp.errors import FleetError, RecordingError, ServiceError
from fleetgp.recording import spec
from fleetgp.recording.message import Recorded
from fleetgp.runtime.arguments import from_arguments
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.logs import make_log
from fleetgp.runtime.mqtt import Link, Session, SessionConfig
from fleetgp.runtime.program import broker_link, stop_on_signals
from fleetgp.runtime.settings import Settings
from simulator.faults import Fault, Truth, inject_chosen, measured, parse
from simulator.replay_report import Progress, gap_line, iso, nothing, summary
from simulator.replay_words import cut_of, speed_of
from simulator.sources import Sources

PART_S = 1.0
LOOK = 1024  # messages between two looks at the clock
AHEAD = (
    "at this speed the times inside payloads leave the clock behind: programs that check them must read with the recording's "
    'own clock (clock = "recording")'
)


def run_replay(args: Namespace) -> int:
    """0 when all was played and the broker took it (or an endless loop was stopped), else 1. Raises FleetError in plain words
    where it cannot run."""
    speed, cut = speed_of(args.speed), cut_of(args)
    described = spec.load(args.spec) if args.spec else None
    faults = [fault for text in args.inject for fault in parse(text)]
    settings = from_arguments(args, os.environ)
    stop = threading.Event()
    stop_on_signals(stop)
    clock = SystemClock()
    screen = Screen(clock)
    sources = Sources(args.files, described, screen.say)
    truths: list[Truth] = []
    search = Search(sources.read, stop, screen)
    change = _changing(measured(search.read(None), faults), args.seed, truths) if faults else None
    timeline = Timeline(
        search.read, cut, now_ns=clock.now_ns, on_gap=lambda gap: screen.say(gap_line(gap)), change=change
    )
    _open(timeline, search, sources)  # before anything is connected, for it may take its time
    if cut.shift_ns is not None and speed != 1.0:
        screen.say(AHEAD)
    link = broker_link(settings)
    session = _session(link, settings, clock, screen)
    session.start()
    try:
        wait_for_broker(session, link, stop, clock)
        progress = Progress(screen, clock, timeline, sources.last_ns)
        player = Player(
            session.lane, clock, stop.wait, speed=speed, say=screen.say, watch=progress.watch, pause=progress.pause
        )
        progress.begin(player)
        report = _play(player, timeline, clock)
        report["stopped"] = report["stopped"] or stop.is_set()
    finally:
        session.stop(timeout_s=PART_S)
        screen.clear()
    if sources.passed_over:
        report["left_out"][EARLIER] = report["left_out"].get(EARLIER, 0) + sources.passed_over
    report |= {"speed": args.speed, "retained_as": cut.retained, "damaged": sources.damages}
    report["faults"] = truths[0].document() if truths else None
    report["refused"] += session.counters().get("refused_by_broker", 0)
    report["content_types_dropped"] = timeline.typed if settings.text("mqtt.version") != "5" else 0
    report["idle_faults"] = truths[0].idle() if truths and not (report["stopped"] and timeline.loop == 1) else []
    lines = summary(report) + (truths[0].lines() if truths else []) + report["idle_faults"]
    print("\n".join(lines), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(report, args.json)
    if report["trouble"]:
        raise ServiceError(f"the replay ended early: {report['trouble']}")
    is_early = report["stopped"] and cut.loops is not None
    troubles = ("unconfirmed", "refused", "damaged", "idle_faults")
    return 1 if is_early or any(report[name] for name in troubles) or not report["sent"] else 0


@dataclass
class Search:
    """Reads recordings until a stop is asked for. is_over: something to play is found; until then it says how far it is."""

    source: Read
    stop: threading.Event
    screen: Screen
    is_over: bool = False

    def read(self, begin_ns: int | None) -> Iterator[Recorded]:
        for number, one in enumerate(self.source(begin_ns)):
            if self.stop.is_set():
                return
            if not self.is_over and number % LOOK == 0 and self.screen.is_due:
                self.screen.show(f"{number:,} messages looked through")
            yield one


def _open(timeline: Timeline, search: Search, sources: Sources) -> None:
    is_found = timeline.open()
    search.screen.clear()
    if search.stop.is_set():
        raise ServiceError("stopped before there was anything to play")
    if not is_found:
        raise RecordingError(nothing(timeline, sources.damages))
    search.is_over = True


def _changing(faults: Sequence[Fault], seed: int, truths: list[Truth]) -> Change:
    """Puts faults into the messages that are played, the same in every loop; ``truths`` gets what was done, one a loop."""

    def change(items: Iterator[tuple[int, Recorded]], first_ns: int) -> Iterator[Recorded]:
        messages, truth = inject_chosen(items, first_ns, faults, seed)
        truths.append(truth)
        return messages

    return change


def _session(link: Link, settings: Settings, clock: SystemClock, screen: Screen) -> Session:
    config = SessionConfig(
        client_id=f"fleetgp-replay-{os.getpid()}-{uuid.uuid4().hex[:6]}",
        keepalive_s=settings.whole("mqtt.keepalive_s"),
        version=settings.text("mqtt.version"),
    )
    log = make_log("replay", settings.text("logs.form"), settings.text("logs.level"), stream=screen)  # type: ignore[arg-type]
    return Session(link, config, clock=clock, log=log)


def _play(player: Player, timeline: Timeline, clock: SystemClock) -> dict[str, Any]:
    begin_s = clock.monotonic_s()
    trouble = ""
    try:
        player.play(timeline)
    except FleetError as err:
        trouble = str(err)
    unconfirmed = player.confirm()
    seconds = clock.monotonic_s() - begin_s
    return {
        "sent": player.sent,
        "unconfirmed": unconfirmed,
        "refused": player.refused,
        "resent": player.resent,
        "bytes": player.bytes,
        "seconds": round(seconds, 3),
        "messages_per_s": round(player.sent / seconds, 1) if seconds else 0.0,
        "late": player.lateness.figures(),
        "broker_away_s": round(player.away_s, 3),
        "first": iso(player.first_ns),
        "last": iso(player.last_ns),
        "loops": timeline.loop,
        "retained": timeline.retained,
        "left_out": dict(timeline.left_out),
        "times_not_moved": dict(timeline.unmoved),
        "out_of_order": timeline.early,
        "pauses_shortened": timeline.shortened,
        "gaps": [gap._asdict() for gap in timeline.gaps],
        "stopped": player.is_stopped,
        "trouble": trouble,
    }
