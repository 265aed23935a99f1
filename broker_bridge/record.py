"""Records what travels over a broker: every message with its topic, quality, retained flag, content type and times.

The session is not persistent: a recorder that ended leaves no queue behind at the broker. What is said while it has no
connection is therefore not recorded; such a gap is marked in the file. A message that such a session does not acknowledge
never comes again, so that waiting with it would protect nothing, only hold up brokers that have a few messages on their way
at once: each is acknowledged when the writer has taken it.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from broker_bridge.broker_losses import BrokerLosses
from broker_bridge.connecting import wait_for_broker
from broker_bridge.continuity import Continuity
from broker_bridge.opening import Opening, twice
from broker_bridge.own_time import own_time_ns
from broker_bridge.rolling import Gone, Rolling
from broker_bridge.screen import Screen, size, span
from fleetgp.errors import RecordingError, ServiceError
from fleetgp.recording.message import Gap, Message
from fleetgp.runtime.clock import Clock, SystemClock
from fleetgp.runtime.logs import make_log
from fleetgp.runtime.mqtt import Incoming, Outgoing, Session, SessionConfig
from fleetgp.runtime.program import broker_link
from fleetgp.runtime.settings import Settings

STEP_S = 0.1  # longest wait for a message: bounds how late a stop is noticed
BATCH = 2000
INBOX = 20_000  # messages between the connection and the file
FLUSH_S = 2.0  # how long messages that do not fill a chunk wait to be in the file: what kill -9 costs at most
CHECK_S = 0.25  # how often it is looked whether messages had to be thrown away
DRAIN_S = 1.0  # at the end, for what is here already
PART_S = 1.0
MOST_TOPICS = 200_000  # that are told apart in the counts
MOST_GAPS = 1000  # that are reported one by one
_THROWN_AWAY = ("inbox_dropped", "inbox_refused", "oversized", "unreadable")


@dataclass(frozen=True)
class Order:
    """What to record. seconds: how long, None = until stopped. rotate_bytes: about the size of one file, None = one file."""

    topics: tuple[str, ...]
    path: Path
    seconds: float | None = None
    rotate_bytes: int | None = None
    keeps_retained: bool = True


@dataclass
class Recorded:
    """What a recording came to.

    topics: as many as MOST_TOPICS are told apart. gaps: the first MOST_GAPS of gap_count. lost: messages that came and are in no
    file. broker_dropped: what the broker says that it dropped meanwhile, of these or others' messages, None where it does not
    tell; broker_dropped_more: it had begun to before it was heard of; broker_told_s: how long before the end it last said so. trouble: why it ended early.
    """

    files: list[str] = field(default_factory=list)
    messages: int = 0
    topics: int = 0
    bytes: int = 0
    seconds: float = 0.0
    messages_per_s: float = 0.0
    gaps: list[dict[str, object]] = field(default_factory=list)
    gap_count: int = 0
    retained_left_out: int = 0
    lost: int = 0
    broker_dropped: int | None = None
    broker_dropped_more: bool = False
    broker_told_s: float | None = None
    trouble: str = ""


class Recorder:
    """One recording from the connection to the closed file. ``run`` returns when it was asked to stop, or time is up."""

    def __init__(self, settings: Settings, order: Order, stopping: threading.Event, clock: Clock | None = None) -> None:
        """Raises ConfigError for settings or topics that cannot be, RecordingError where the file is there already."""
        Rolling.check(order.path, order.rotate_bytes)
        self.order = order
        self.clock: Clock = clock or SystemClock()
        self.screen = Screen(self.clock)
        self._stopping = stopping
        self._link = broker_link(settings)
        log = make_log("record", settings.text("logs.form"), settings.text("logs.level"), stream=self.screen)  # type: ignore[arg-type]
        config = SessionConfig(
            client_id=f"fleetgp-record-{os.getpid()}-{uuid.uuid4().hex[:6]}",
            subscriptions=twice(order.topics) if order.keeps_retained else tuple((one, 1) for one in order.topics),
            keepalive_s=settings.whole("mqtt.keepalive_s"),
            inbox_capacity=INBOX,
            version=settings.text("mqtt.version"),
        )
        self.session = Session(self._link, config, clock=self.clock, birth=self._note_connection, log=log)
        self.losses = BrokerLosses(self._link, self.clock, settings.text("mqtt.version"))
        self.told = Recorded()
        self._opening = Opening()
        self._generation = -1
        self._connections: deque[tuple[int, int]] = deque()  # generation and time of each, from the session's thread
        self._topics: set[str] = set()
        self._flushed_s = self._checked_s = self.clock.monotonic_s()

    def run(self) -> Recorded:
        """Raises ServiceError where there is no broker or it refuses a topic, RecordingError where no file can be made."""
        self.losses.start()
        self.session.start()
        try:
            self._connect()
            self.continuity = Continuity(self.clock.now_ns())
            self.file = Rolling(self.order.path, self._about(), self.order.rotate_bytes)
            started_s = self.clock.monotonic_s()
            try:
                self._record(started_s)
            except RecordingError as err:
                self.told.trouble = str(err)
            self._finish(started_s)
        finally:
            self.session.stop(timeout_s=PART_S)
            self.losses.stop()
            self.screen.clear()
        return self.told

    def _connect(self) -> None:
        wait_for_broker(self.session, self._link, self._stopping, self.clock)
        refused = self.session.counters().get("subscriptions_refused", 0)
        if refused:
            count = (refused + 1) // 2 if self.order.keeps_retained else refused
            raise ServiceError(f"the broker refuses {count} of these topics; check what it lets this user read")

    def _about(self) -> Mapping[str, str]:
        return {
            "broker": f"{'mqtts' if self._link.is_tls else 'mqtt'}://{self._link.host}:{self._link.port}",
            "topics": " ".join(self.order.topics),
            "started": datetime.fromtimestamp(self.clock.now_ns() / 1e9, UTC).isoformat().replace("+00:00", "Z"),
            "retained": "keep" if self.order.keeps_retained else "skip",
        }

    def _note_connection(self) -> tuple[Outgoing, ...]:
        self._connections.append((self.session.generation, self.clock.now_ns()))
        return ()

    def _record(self, started_s: float) -> None:
        seconds = self.order.seconds
        while not self._stopping.is_set():
            if seconds is not None and self.clock.monotonic_s() - started_s >= seconds:
                break
            batch = self.session.receive(BATCH, STEP_S)
            self._take(batch)
            self._flush_if_due()
            if self.clock.monotonic_s() - self._checked_s >= CHECK_S:
                self._note_losses()
            if self.screen.is_due:
                self.screen.show(self._progress(self.clock.monotonic_s() - started_s))
        by_s = self.clock.monotonic_s() + DRAIN_S
        while self.clock.monotonic_s() < by_s and (left := self.session.receive(BATCH, 0.0)):
            self._take(left)

    def _take(self, batch: list[Incoming]) -> None:
        """Write what came, each connection's messages after the gap before it."""
        if not batch:
            self._put(self._opening.release() if self._connections else self._opening.due(self.clock.monotonic_s()))
            while self._connections:
                self._mark(self.continuity.connected(*self._connections.popleft()))
            return
        generation = batch[0].generation
        last = batch[-1]
        if generation == last.generation:
            self._write(batch, generation)
            return
        same = [message for message in batch if message.generation == generation]
        self._write(same, generation)
        self._take(batch[len(same) :])

    def _write(self, batch: list[Incoming], generation: int) -> None:
        """Messages of one connection."""
        if generation != self._generation:
            self._put(self._opening.release())
            self._generation = generation
        while self._connections and self._connections[0][0] <= generation:
            self._mark(self.continuity.connected(*self._connections.popleft()))
        # retained messages may come before the broker has confirmed the subscription
        self._mark(self.continuity.connected(generation, batch[0].received_ns))
        self.session.ack_all(batch)
        self.continuity.heard(batch[-1].received_ns)
        self._put(self._opening.take(batch, generation, self.clock.monotonic_s()))

    def _put(self, batch: list[Incoming]) -> None:
        """Into the file."""
        if not self.order.keeps_retained:
            news = [message for message in batch if not message.is_retained]
            self.told.retained_left_out += len(batch) - len(news)
            batch = news
        if len(self._topics) < MOST_TOPICS:
            self._topics.update(message.topic for message in batch)
        write, written = self.file.write, 0
        try:
            for m in batch:
                written += 1
                write(
                    Message(
                        m.topic, m.payload, m.received_ns, own_time_ns(m.payload), m.qos, m.is_retained, m.content_type
                    )
                )
        finally:
            self.told.messages += written

    def _flush_if_due(self) -> None:
        now_s = self.clock.monotonic_s()
        if now_s - self._flushed_s >= FLUSH_S or self.file.is_full:
            self._flushed_s = now_s
            self._note_gone(self.file.flush())

    def _note_losses(self) -> None:
        self._checked_s = self.clock.monotonic_s()
        self._mark(self.continuity.thrown_away(self._thrown_away(), self.clock.now_ns()))
        self._note_broker()

    def _thrown_away(self) -> int:
        counters = self.session.counters()
        thrown_away = sum(counters.get(name, 0) for name in _THROWN_AWAY)
        self.told.lost = thrown_away + self.file.messages_gone
        return thrown_away

    def _note_broker(self) -> None:
        before = self.told.broker_dropped
        self.losses.look()
        dropped = self.losses.tally.dropped
        if dropped is not None and self.order.keeps_retained:
            dropped = max(0, dropped - self._opening.repeats_dropped)
        self.told.broker_dropped = dropped
        if dropped and not before:
            self.screen.say(
                "the broker says that it has begun to drop messages, of ours or of others: publish with QoS 1, and give "
                "the broker longer queues (mosquitto: max_queued_messages)"
            )

    def _note_gone(self, gone: Gone | None) -> None:
        """A file that is no longer where it was made."""
        if gone is None:
            return
        what = f"removed with {gone.messages:,} messages in it" if gone.messages else "moved"
        self.screen.say(f"{gone.path} was {what} while it was written; going on in {self.file.files[-1]}")
        if gone.messages:
            now_ns = self.clock.now_ns()
            self._mark(Gap(min(gone.first_ns, now_ns), now_ns, f"{gone.path.name} was removed while it was written"))

    def _mark(self, gap: Gap | None) -> None:
        if gap is None:
            return
        self.file.mark_gap(gap)
        seconds = (gap.end_ns - gap.start_ns) / 1e9
        self.told.gap_count += 1
        if self.told.gap_count <= MOST_GAPS:
            self.told.gaps.append({"start_ns": gap.start_ns, "end_ns": gap.end_ns, "seconds": seconds, "why": gap.why})
        self.screen.say(f"gap of {span(seconds)} in the recording: {gap.why}")

    def _finish(self, started_s: float) -> None:
        """Close the file, whatever became of the disk, and count."""
        told = self.told
        try:
            if not told.trouble:
                self._put(self._opening.release())
                self._mark(self.continuity.ended(self.clock.now_ns(), is_connected=self.session.is_connected))
                self._note_losses()
            dropped = "not told" if told.broker_dropped is None else str(told.broker_dropped)
            self.file.close(lost=str(told.lost), broker_dropped=dropped)
        except RecordingError as err:
            told.trouble = told.trouble or str(err)
        self._thrown_away()
        told.messages -= self.file.unwritten
        told.lost += self.file.unwritten
        if told.broker_dropped is not None:
            told.broker_dropped_more = self.losses.tally.is_at_least
            told.broker_told_s = self.clock.monotonic_s() - self.losses.tally.told_s
        told.seconds = self.clock.monotonic_s() - started_s
        told.files = [str(path) for path in self.file.files]
        told.topics = len(self._topics)
        told.bytes = self.file.bytes_written
        told.messages_per_s = told.messages / told.seconds if told.seconds else 0.0

    def _progress(self, seconds: float) -> str:
        told = self.told
        away = "" if self.session.is_connected else ", no connection to the broker: waiting for it"
        rate = told.messages / seconds if seconds else 0.0
        dropped = f", {told.broker_dropped:,} dropped by the broker" if told.broker_dropped else ""
        return (
            f"{span(seconds)}: {told.messages:,} messages, {rate:,.0f}/s, {len(self._topics)} topics, "
            f"{size(self.file.bytes_written)}, {told.gap_count} gaps, {told.lost} lost{dropped}{away}"
        )
