"""How a replay goes while it goes, and how it went: for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker_bridge.replay import Player
from broker_bridge.screen import Screen, size, span
from broker_bridge.selection import OWN
from broker_bridge.timeline import Due, Timeline
from fleetgp.recording.message import Gap
from fleetgp.runtime.clock import Clock

PAUSE_S = 60.0  # a wait that is said in words, and then only one twice as long
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
    _longest_s: float = PAUSE_S / 2

    def begin(self, player: Player) -> None:
        """The replay begins now."""
        self.player, self.begin_s = player, self.clock.monotonic_s()

    def watch(self, due: Due) -> None:
        if self.screen.is_due and self.player is not None:
            self.screen.show(self._line(due, self.player))

    def pause(self, due: Due, left_s: float) -> None:
        """The next message is due in so many seconds."""
        if left_s > 2 * self._longest_s:
            self._longest_s = left_s
            self.screen.say(
                f"the next message is of {iso(due.at_ns)}, and comes in {span(left_s)}; --max-pause 10s, or a higher --speed, "
                "makes that shorter"
            )
        if self.screen.is_due and self.player is not None:
            self.screen.show(self._line(due, self.player, f"  next in {span(left_s)}"))

    def _line(self, due: Due, player: Player, ahead: str = "") -> str:
        first_ns = player.first_ns or due.at_ns
        last_ns = min(self.last_ns, self.timeline.selection.end_ns or self.last_ns)
        at_ns = player.last_ns or due.at_ns
        share = min(1.0, (at_ns - first_ns) / (last_ns - first_ns)) if last_ns > first_ns else None
        bar = "" if share is None else f"[{'#' * round(20 * share):<20}] {100 * share:3.0f} %  "
        late = f"  late {player.lateness.percentile(0.99):.1f} ms" if player.lateness.count else ""
        loop = f"  loop {self.timeline.loop}" if self.timeline.loop > 1 else ""
        passed_s = self.clock.monotonic_s() - self.begin_s
        rate = player.sent / passed_s if passed_s > 0 else 0.0
        return f"{bar}{iso(at_ns)}  {messages(player.sent)}, {rate:,.0f}/s{ahead}{late}{loop}"


def iso(at_ns: int | None) -> str:
    """A time for people, to the second."""
    if at_ns is None:
        return ""
    try:
        return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return "a time that no calendar has"


def messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def nothing(timeline: Timeline, damages: list[str]) -> str:
    """Why there is nothing to play."""
    if timeline.is_empty:
        return "nothing to play: these files hold no message" + "".join(f"; damaged: {words}" for words in damages)
    left_out = "".join(f", {messages(number)} {_on(reason)}" for reason, number in timeline.left_out.items())
    return f"nothing to play: no message is on the topics and of the times asked for (left out{left_out})".replace(
        "(left out, ", "(left out: "
    ).replace(" (left out)", "")


def _on(reason: str) -> str:
    hint = " (--own-topics plays them, in the name of programs that may be running)" if reason == OWN else ""
    return f"{'on ' if 'topics' in reason else ''}{reason}{hint}"


def gap_line(gap: Gap) -> str:
    return f"the recording has a gap of {span((gap.end_ns - gap.start_ns) / 1e9)} at {iso(gap.start_ns)}: {gap.why}"


def summary(report: dict[str, Any]) -> list[str]:
    """Lines for people."""
    late = report["late"]
    lines = [
        f"{messages(report['sent'])} ({size(report['bytes'])}) in {span(report['seconds'])}, "
        f"{report['messages_per_s']:,.0f}/s"
        + (f", of {report['first']} to {report['last']}" if report["first"] else ""),
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
    lines += [f"left out: {number:,} {_on(reason)}" for reason, number in report["left_out"].items()]
    if report["out_of_order"]:
        lines.append(
            f"out of order: {messages(report['out_of_order'])}, received before the one before, sent right after it"
        )
    if report["pauses_shortened"]:
        lines.append(f"pauses shortened: {report['pauses_shortened']:,} (--max-pause)")
    for why, number in report["times_not_moved"].items():
        lines.append(f"times not moved: in {number:,} messages ({NOT_MOVED.get(why, why)})")
    lines += [f"damaged: {words}" for words in report["damaged"]]
    if report["stopped"]:
        lines.append("stopped before the end")
    return lines
