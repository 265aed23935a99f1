"""The MQTT session of a program: it connects, returns after every outage, and loses nothing that it accepted.

One thread of its own owns the connection. Messages come in through a bounded queue and are acknowledged by the owner
once they are safe; what must arrive goes out through an outbox on disk. Delivery is at least once: expect duplicates.
"""

from __future__ import annotations

import random
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from paho.mqtt.client import topic_matches_sub

from fleetgp.errors import ServiceError, StorageError
from fleetgp.runtime.clock import Clock
from fleetgp.runtime.connection import (
    Accepted,
    Closed,
    Connection,
    Happening,
    Refused,
    Subscribed,
)
from fleetgp.runtime.delivery import Delivery
from fleetgp.runtime.intake import Intake
from fleetgp.runtime.lane import Lane
from fleetgp.runtime.link import (
    Backoff,
    Incoming,
    Link,
    Outgoing,
    SessionConfig,
    explain,
    explain_no_answer,
    explain_refusal,
    explain_rival,
    explain_silence,
    parse_url,
    tls_context,
)
from fleetgp.runtime.logs import Log
from fleetgp.runtime.outbox import Outbox
from fleetgp.runtime.packets import Confirmed, Unreadable
from fleetgp.runtime.symptoms import SHORT_LIFE_S, Complaints, Echo, Rival

__all__ = ["Incoming", "Link", "Outgoing", "Session", "SessionConfig", "parse_url"]

STEP_S = 0.2  # longest wait of one step: bounds how late deadlines and a stop are noticed
ANSWER_S = 10.0  # from the open socket to the confirmed subscriptions
PART_S = 1.0  # for a DISCONNECT to be written
TAKEN_OVER = 142  # MQTT 5 reason code
WRONG_VERSION = 132  # MQTT 5 reason code
FAILURES = 128  # MQTT 5 reason codes from here on say no


class Session:
    """A connection that is always being kept up. All methods may be called from any thread.

    birth: gives the messages to publish whenever the session is ready (after the broker confirmed the subscriptions);
    called on the session's thread. outbox: for ``send``; the owner closes it after ``stop``.
    Raises ConfigError when a certificate file cannot be used.
    """

    def __init__(
        self,
        link: Link,
        config: SessionConfig,
        *,
        clock: Clock,
        birth: Callable[[], Sequence[Outgoing]] = tuple,
        outbox: Outbox | None = None,
        log: Log,
    ) -> None:
        self._link = link
        self._config = config
        self._clock = clock
        self._birth = birth
        self._outbox = outbox
        self._log = log
        self._tls: ssl.SSLContext | None = tls_context(link) if link.is_tls else None
        self._version = config.version
        self._delivery = Delivery(outbox, self._note_outbox_failure)
        self._backoff = Backoff(random.Random())
        self._changed = threading.Condition(threading.RLock())
        self.lane = Lane(self._delivery, self._changed, lambda: self._is_ready)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._connection: Connection | None = None
        self._generation = 0
        self._is_ready = False
        self._ready_since_s = 0.0
        self._part_by_s: float | None = None
        self._is_taken_over = self._is_refused = False
        self._complaints = Complaints(log, clock)
        self._echo = Echo(config.heartbeat_topic, config.heartbeat_s, clock)
        self._rival = Rival()
        self._counts: Counter[str] = Counter()
        topic = config.heartbeat_topic
        is_echo_ours = bool(topic) and not any(topic_matches_sub(f, topic) for f, _ in config.subscriptions)
        self._subscriptions = config.subscriptions + (((topic, 0),) if is_echo_ours else ())
        self._intake = Intake(config, is_echo_ours=is_echo_ours, counts=self._counts, log=log)

    # -- for the owner ------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """Connected, subscribed, birth published."""
        return self._is_ready

    @property
    def generation(self) -> int:
        """Number of the present (or last) connection."""
        return self._generation

    def start(self) -> None:
        """Begin to connect; returns at once, whether or not a broker is there."""
        if self._thread is not None:
            raise ServiceError(f"the MQTT session {self._config.client_id} was started before")
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{self._config.client_id}", daemon=True)
        self._thread.start()

    def wait_connected(self, timeout_s: float) -> bool:
        """Wait until the session is ready; False when ``timeout_s`` passed first."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready or self._failure is not None, timeout_s)
            self._raise_failure()
            return self._is_ready

    def receive(self, most: int, timeout_s: float) -> list[Incoming]:
        """Up to ``most`` messages, waiting for the first; [] when none came. Acknowledge QoS 1 ones, in order."""
        self._raise_failure()
        return self._intake.inbox.take(most, timeout_s)

    def ack(self, message: Incoming) -> None:
        """Tell the broker that a QoS 1 message is safe. One of an earlier connection is left: it will come again."""
        self.ack_all((message,))

    def ack_all(self, messages: Sequence[Incoming]) -> None:
        """The same for many, in their order, at once."""
        with self._changed:
            present = self._connection.generation if self._connection else 0
            mids = [message.mid for message in messages if message.qos and message.generation == present]
            self._counts["acks_stale"] += sum(message.qos > 0 for message in messages) - len(mids)
            if mids and self._connection is not None:
                self._connection.ack(mids)

    def publish(self, message: Outgoing) -> bool:
        """Send now, or not at all: False when not connected or when the broker has stalled (counted)."""
        with self._changed:
            is_taken = self._is_ready and self._delivery.publish(message)
            if is_taken:
                self._echo.sent(message.topic)
            else:
                self._counts["publish_refused"] += 1
            return is_taken

    def send(self, topic: str, payload: bytes, *, is_retained: bool = False, key: str | None = None) -> None:
        """Keep a message on disk until the broker has it; a waiting one of the same key is replaced.

        Where the disk refuses, the message goes out directly if it can (counted as ``outbox_failed``).
        """
        if self._outbox is None:
            raise ServiceError(f"the MQTT session {self._config.client_id} has no outbox to send {topic} through")
        with self._changed:
            try:
                self._outbox.put(topic, payload, retain=is_retained, key=key)
            except StorageError as error:
                self._note_outbox_failure(error)
                self.publish(Outgoing(topic, payload, 1, is_retained))
            else:
                self._delivery.pump()
                if self._is_ready:
                    self._echo.sent(topic)

    def counters(self) -> dict[str, int]:
        """Counts since the start, by name; what never happened may be absent except for the names of queues."""
        with self._changed:
            outbox = self._outbox.counters() if self._outbox else {}
            always = dict.fromkeys(("connects", "disconnects", "taken_over", "oversized"), 0)
            return always | dict(self._counts) | self._intake.inbox.counters() | outbox

    def figures(self) -> dict[str, float]:
        """Depths of the queues now."""
        own = self._outbox
        outbox = {"outbox_depth": float(own.depth), "outbox_bytes": float(own.bytes)} if own else {}
        return {
            "mqtt_connected": float(self._is_ready),
            "inbox_depth": float(self._intake.inbox.depth),
            "pending": float(self._delivery.pending),
        } | outbox

    def stop(self, *, farewell: Sequence[Outgoing] = (), timeout_s: float = 3.0) -> None:
        """Publish ``farewell``, let what is on its way arrive, part in peace. Takes ``timeout_s`` at most.

        What is still in the outbox then stays there for the next start.
        """
        end_s = self._clock.monotonic_s() + timeout_s
        with self._changed:
            for message in farewell:
                self.publish(message)
            self._changed.wait_for(lambda: not self._is_ready or self._delivery.is_idle, timeout_s)
            self._stopping.set()
            if self._connection is not None:
                self._part()
        if self._thread is not None:
            self._thread.join(max(0.1, end_s - self._clock.monotonic_s()))

    # -- the session's thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._generation += 1
                connection = Connection(
                    self._link,
                    self._config,
                    generation=self._generation,
                    tls=self._tls,
                    version=self._version,
                    clock=self._clock,
                )
                try:
                    connection.open()
                except (OSError, UnicodeError) as error:
                    self._counts["connect_failures"] += 1
                    self._rival.excuse()
                    self._complaints.say(explain(error, self._link))
                else:
                    self._serve(connection)
                self._stopping.wait(self._backoff.next_s())
        except BaseException as failure:
            with self._changed:
                self._failure = failure
                self._changed.notify_all()
            raise

    def _serve(self, connection: Connection) -> None:
        """Keep one connection until it ends, whoever ends it."""
        with self._changed:
            self._connection = connection
            self._part_by_s = None
            self._is_taken_over = self._is_refused = False
            self._echo.begin()
        ready_by_s = self._clock.monotonic_s() + ANSWER_S
        try:
            while connection.step(STEP_S):
                self._act(connection)
                if self._is_overdue(ready_by_s):
                    break
            while connection.happened:
                self._act(connection)
        finally:
            connection.drop()
            self._leave()

    def _is_overdue(self, ready_by_s: float) -> bool:
        now_s = self._clock.monotonic_s()
        if self._part_by_s is not None:
            return now_s > self._part_by_s
        if self._stopping.is_set():
            self._part()
        elif not self._is_ready and now_s > ready_by_s:
            return True
        elif self._echo.is_lost:
            self._counts["heartbeat_lost"] += 1
            self._echo.count_loss()
            self._complaints.say(explain_silence(self._config))
            return True
        return False

    def _act(self, connection: Connection) -> None:
        """Do what follows from what happened during a step; not much longer than a step, for then pings are due too."""
        now_s = self._clock.monotonic_s()
        room_by_s, until_s = now_s + self._config.inbox_wait_s, now_s + STEP_S
        confirmed: list[int] = []
        while connection.happened and now_s < until_s:
            match connection.happened.popleft():
                case Incoming() as message:
                    self._take_in(message, max(0.0, room_by_s - now_s))
                    now_s = self._clock.monotonic_s()
                case Confirmed(mid, code):
                    confirmed.append(mid)
                    self._counts["refused_by_broker"] += code >= FAILURES
                case happening:
                    self._change_state(connection, happening)
        if confirmed:
            with self._changed:
                for mid in confirmed:
                    self._delivery.confirm(mid)
                self._delivery.pump()
                self._changed.notify_all()

    def _change_state(self, connection: Connection, happening: Happening) -> None:
        match happening:
            case Accepted(had_queue):
                self._note_accepted(had_queue)
                if self._subscriptions:
                    connection.subscribe(self._subscriptions)
                else:
                    self._become_ready(connection)
            case Subscribed(refused):
                for index in refused:
                    self._counts["subscriptions_refused"] += 1
                    pattern = self._subscriptions[index][0]
                    self._log.once(
                        f"subscription {pattern}", "error", "the broker refuses a subscription", filter=pattern
                    )
                self._become_ready(connection)
            case Refused(code):
                self._is_refused = True
                self._counts["connect_failures"] += 1
                if code == WRONG_VERSION and self._version == "5":
                    self._version = "3.1.1"
                    self._log.info("the broker does not offer MQTT 5; going on with 3.1.1")
                else:
                    self._complaints.say(explain_refusal(code, self._link, self._config.client_id))
            case Closed(code) if code == TAKEN_OVER:
                self._is_taken_over = True
            case Unreadable(mid, qos):
                self._counts["unreadable"] += 1
                if qos:
                    connection.ack((mid,))

    def _become_ready(self, connection: Connection) -> None:
        births = self._birth()
        with self._changed:
            self._delivery.begin(connection)
            for message in births:
                self._delivery.publish(message)
            connection.flush()  # who waits for us to be connected finds the birth said
            self._is_ready = True
            self._ready_since_s = self._clock.monotonic_s()
            self._delivery.pump()
            self._changed.notify_all()
        self._log.info("connected", broker=f"{self._link.host}:{self._link.port}", client=self._config.client_id)

    def _leave(self) -> None:
        """The connection is over: nothing of it may be confirmed or acknowledged any more."""
        lived_s = self._clock.monotonic_s() - self._ready_since_s
        with self._changed:
            was_ready, self._is_ready = self._is_ready, False
            was_ours = self._part_by_s is not None
            self._connection = None
            self._delivery.end()
            self._changed.notify_all()
        if self._stopping.is_set():
            return
        if not was_ready:
            if not self._is_refused:
                self._complaints.say(explain_no_answer(self._link))
            return
        self._counts["disconnects"] += 1
        if lived_s >= SHORT_LIFE_S:
            self._backoff.reset()
            self._complaints.relief()
        if not was_ours and self._rival.is_there(lived_s, self._is_taken_over):
            self._counts["taken_over"] += 1
            self._complaints.say(explain_rival(self._config))
        else:
            self._log.warning("disconnected", broker=f"{self._link.host}:{self._link.port}", after_s=round(lived_s, 1))

    def _take_in(self, message: Incoming, wait_s: float) -> None:
        if self._part_by_s is not None:
            self._counts["parting_dropped"] += message.qos == 0
            return  # not acknowledged, so what is QoS 1 comes again
        if not message.is_retained:
            self._echo.heard()
        match self._intake.offer(message, wait_s):
            case "finished":
                self.ack(message)
            case "refused":
                self._complaints.say("messages come faster than they are worked off; the broker has to keep them")
                self._part()

    # -- small parts --------------------------------------------------------------------------------------------------

    def _part(self) -> None:
        with self._changed:
            if self._connection is not None and self._part_by_s is None:
                self._part_by_s = self._clock.monotonic_s() + PART_S
                self._connection.disconnect()

    def _note_accepted(self, had_queue: bool) -> None:
        if self._config.is_persistent and self._counts["connects"] and not had_queue:
            self._counts["queues_forgotten"] += 1
            self._log.warning("the broker forgot the messages it kept for us", client=self._config.client_id)
        self._counts["connects"] += 1

    def _note_outbox_failure(self, error: StorageError) -> None:
        self._counts["outbox_failed"] += 1
        self._log.once("outbox failed", "error", "outbox_failed", why=str(error))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ServiceError(f"the MQTT session {self._config.client_id} has ended") from self._failure
