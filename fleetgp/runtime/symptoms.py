"""Signs that a connection is not well, and telling people so without flooding their log."""

from __future__ import annotations

from fleetgp.runtime.clock import Clock
from fleetgp.runtime.logs import Log

REPEAT_S = 600.0  # a trouble that lasts is said again this often
PERIODS = 3  # heartbeats without an echo until the connection counts as deaf
GIVE_UP = 3  # connections found deaf in a row
SHORT_LIFE_S = 5.0  # a connection that ends sooner is suspicious
SHORT_LIVES = 3  # so many in a row mean that another program has our client id


class Complaints:
    """Says a trouble once, and again only now and then while it lasts."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._last = ""
        self._said_s = 0.0

    def say(self, sentence: str) -> None:
        now_s = self._clock.monotonic_s()
        if sentence != self._last or now_s - self._said_s >= REPEAT_S:
            self._last, self._said_s = sentence, now_s
            self._log.warning("no_broker", why=sentence)

    def relief(self) -> None:
        """The trouble is over: if it comes back, it is news."""
        self._last = ""


class Echo:
    """Notices a connection that looks alive but brings nothing: what we send on our heartbeat topic must come back.

    The silence counts only from a heartbeat that we sent; a program that sends none is never found deaf. Any message
    that is not a retained one proves that the connection hears. After GIVE_UP losses in a row it is the broker's rules
    that hide the topic, and silence no longer counts until something was heard.
    """

    def __init__(self, topic: str, period_s: float, clock: Clock) -> None:
        self._topic = topic
        self._patience_s = PERIODS * period_s
        self._clock = clock
        self._due_s: float | None = None
        self._losses = 0

    def begin(self) -> None:
        """A new connection: what was sent on the old one will not come back."""
        self._due_s = None

    def count_loss(self) -> None:
        self._losses += 1

    def sent(self, topic: str) -> None:
        if topic == self._topic and self._due_s is None and self._losses < GIVE_UP:
            self._due_s = self._clock.monotonic_s() + self._patience_s

    def heard(self) -> None:
        self._due_s = None
        self._losses = 0

    @property
    def is_lost(self) -> bool:
        due_s = self._due_s
        return due_s is not None and self._clock.monotonic_s() > due_s


class Rival:
    """Notices that another program uses our client id: the broker closes one connection after another soon after it began."""

    def __init__(self) -> None:
        self._short_lives = 0

    def excuse(self) -> None:
        """The broker was away: that explains connections that ended soon."""
        self._short_lives = 0

    def is_there(self, lived_s: float, is_told: bool) -> bool:
        """Judge a connection that the other side ended after ``lived_s``; is_told: the broker said "taken over"."""
        self._short_lives = self._short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        if is_told or self._short_lives >= SHORT_LIVES:
            self._short_lives = 0
            return True
        return False
