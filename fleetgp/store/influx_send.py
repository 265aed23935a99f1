"""Lines to the server until it has each of them, or each that it has not is known to be bad.

What the server refuses is halved until the bad line stands alone. Before that it is given a harmless line: a server that
refuses this too is the wrong one, or in no state to take anything, and then no line of ours is to blame. So with a line
that makes the server fail each time: it is looked for only while the server takes the harmless line, and blamed only
after it has failed alone for BLAMED_AFTER_S.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleetgp.runtime.clock import Clock
from fleetgp.runtime.influx import Client
from fleetgp.runtime.influx_answers import InfluxError
from fleetgp.store.influx_lines import MS, key

SEARCH_AFTER_S, BLAMED_AFTER_S = 15.0, 60.0
BLAMED_AFTER = 3
MAX_SUSPECTS = 8  # more at once are no bad lines but a server that cannot take this
MADE_AGAIN_S = 9.0  # a server that says "not found" of what it has just made misses something else
HARMLESS = "fleetgp_probe"
_HOUR_MS = 3_600_000
_UNESCAPED_SPACE = re.compile(r"(?<!\\) ")

Dead = list[tuple[str, str]]


@dataclass
class _Suspect:
    """A line that failed alone, in each search since: since when, how often, and whether that is enough."""

    since_s: float
    times: int
    is_blamed: bool = False


class Sender:
    """Sends for one thread. shipped: lines taken since the start; news: what it has done at the server, not told yet."""

    def __init__(self, client: Client, clock: Clock, fleet: str) -> None:
        self.shipped = 0
        self.news = ""
        self._client = client
        self._clock = clock
        self._fleet = fleet
        self._made_s = float("-inf")
        self._suspects: dict[tuple[str, str], _Suspect] = {}  # of the last search
        self._found: dict[tuple[str, str], _Suspect] = {}  # of this one

    def send(self, lines: Sequence[str], dead: Dead, failing_s: float = 0.0) -> None:
        """Send all; bad lines are added to dead, with the server's words. failing_s: for how long nothing has gone
        through. Raises InfluxError; then not all of the lines are there, and they are to be sent again."""
        if not lines:
            return
        try:
            self._write(lines)
        except InfluxError as err:
            is_search = err.is_stubborn and failing_s >= SEARCH_AFTER_S
            if err.verdict != "split" and not is_search:
                raise
            self._check_server()
            self._found = {}
            try:
                self._divide(lines, err, dead, is_search=is_search)
            finally:
                self._suspects = self._found
            if any(not suspect.is_blamed for suspect in self._found.values()):
                raise
        self._suspects = {}

    def mend(self, err: InfluxError) -> bool:
        """Make the database where that is what is missing and 1.x answers; False where it is not. Raises InfluxError."""
        now_s = self._clock.monotonic_s()
        if err.status != 404 or now_s - self._made_s < MADE_AGAIN_S or self._client.probe().kind != "influxdb1":
            return False
        try:
            self._client.make_database()
        except InfluxError as refused:
            if refused.verdict == "wait":
                raise
            words = f"{self._client.where} answers 404 ({err.detail}), and does not let us make the database ({refused.detail})"
            advice = f"make it there: influx -execute 'CREATE DATABASE \"{self._client.access.database}\"'"
            raise InfluxError(f"{words}; {advice}", "denied", err.detail) from err
        self._made_s = now_s
        self.news = f"made the database {self._client.location}, which was not there"
        return True

    def _write(self, lines: Sequence[str]) -> None:
        self._client.write(lines)
        self.shipped += len(lines)

    def _check_server(self) -> None:
        """Raises InfluxError where the server does not take a line that nothing is wrong with."""
        now_ms = self._clock.now_ms()
        try:
            self._client.write([f"{key(HARMLESS, fleet=self._fleet)} ok=1 {(now_ms - now_ms % _HOUR_MS) * MS}"])
        except InfluxError as err:
            if err.verdict != "split":
                raise
            words = f"{self._client.where} refuses whatever it is sent: {err.detail}"
            advice = f"is store.url the address of an InfluxDB, and is {self._client.access.database!r} in order?"
            raise InfluxError(f"{words}; {advice}", "denied", err.detail) from err

    def _divide(self, lines: Sequence[str], err: InfluxError, dead: Dead, *, is_search: bool) -> None:
        """What to do with lines that were refused together."""
        if err.verdict != "split" and not (is_search and err.is_stubborn):
            raise err
        if len(lines) == 1:
            if err.verdict == "split":
                dead.append((lines[0], err.detail))
            else:
                self._doubt(lines[0], err, dead)
            return
        middle = len(lines) // 2
        for half in (lines[:middle], lines[middle:]):
            try:
                self._write(half)
            except InfluxError as again:
                self._divide(half, again, dead, is_search=is_search)

    def _doubt(self, line: str, err: InfluxError, dead: Dead) -> None:
        self._check_server()
        now_s, name = self._clock.monotonic_s(), _identity(line)
        before = self._suspects.get(name, _Suspect(now_s, 0))
        suspect = self._found[name] = _Suspect(before.since_s, before.times + 1)
        suspect.is_blamed = suspect.times >= BLAMED_AFTER and now_s - suspect.since_s >= BLAMED_AFTER_S
        if suspect.is_blamed:
            dead.append((line, f"fails each time, while others are taken: {err.detail}"))
        if len(self._found) > MAX_SUSPECTS:
            raise err


def _identity(line: str) -> tuple[str, str]:
    """What tells a point from others, whatever its values."""
    return _UNESCAPED_SPACE.split(line, 1)[0], line.rpartition(" ")[2]
