"""How a replay goes while it goes, and how it went: for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker_bridge.replay import Player
from broker_bridge.screen import Screen, size, span
from broker_bridge.timeline import OWN, Due, Timeline
from fleetgp.recording.message import Gap
from fleetgp.runtime.clock import Clock

NOT_MOVED = {"no_time": "none in them", "sparkplug": "Sparkplug"}


@dataclass
class Progress:
    """How far a replay is, told to the screen."""

    screen: Screen
    clock: Clock
    timeline: Timeline
    last_ns: int
    begin_s: float = 0.0
    player: Player | None = None

    def begin(self, player: Player) -> None:
        """The replay begins now."""
        self.player, self.begin_s = player, self.clock.monotonic_s()

    def watch(self, due: Due) -> None:
        if self.screen.is_due and self.player is not None:
            self.screen.show(self._line(due, self.player))

    def _line(self, due: Due, player: Player) -> str:
        first_ns = self.timeline.first_ns or due.at_ns
        share = (due.at_ns - first_ns) / (self.last_ns - first_ns) if self.last_ns > first_ns else None
        bar = "" if share is None else f"[{'#' * round(20 * share):<20}] {100 * share:3.0f} %  "
        late = f"  late {player.lateness.percentile(0.99):.1f} ms" if player.lateness.count else ""
        loop = f"  loop {self.timeline.loop}" if self.timeline.loop > 1 else ""
        passed_s = self.clock.monotonic_s() - self.begin_s
        rate = player.sent / passed_s if passed_s > 0 else 0.0
        return f"{bar}{iso(due.at_ns)}  {player.sent:,}  {rate:,.0f}/s{late}{loop}"


def iso(at_ns: int | None) -> str:
    """A time for people, to the second."""
    if at_ns is None:
        return ""
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")


def gap_line(gap: Gap) -> str:
    return f"the recording has a gap of {span((gap.end_ns - gap.start_ns) / 1e9)} at {iso(gap.start_ns)}: {gap.why}"


def summary(report: dict[str, Any]) -> list[str]:
    """Lines for people."""
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
    if report["retained"] and report["retained_as"] == "keep":
        lines.append(
            f"{report['retained']} messages are retained again: the broker keeps them (--retained plain, or skip)"
        )
    if report["content_types_dropped"]:
        lines.append(f"{report['content_types_dropped']} content types were not sent: that needs --set mqtt.version=5")
    for reason, number in report["left_out"].items():
        hint = " (--own-topics plays them, in the name of programs that may be running)" if reason == OWN else ""
        lines.append(f"left out: {number:,} {'on ' if 'topics' in reason else ''}{reason}{hint}")
    for why, number in report["times_not_moved"].items():
        lines.append(f"times not moved: in {number:,} messages ({NOT_MOVED.get(why, why)})")
    lines += [f"damaged: {words}" for words in report["damaged"]]
    if report["stopped"]:
        lines.append("stopped before the end")
    if not report["sent"] and not report["trouble"]:
        lines.append("nothing was played: no message of these files is on the topics and times asked for")
    return lines
