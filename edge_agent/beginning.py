"""An agent before its brain: it listens, keeps what it hears, and finds out what its owner left open.

Readings are acknowledged once they are on the disk, as the brain's are, for a broker sends only a few before it wants that.
"""

from __future__ import annotations

from typing import NamedTuple

from edge_agent import choosing
from edge_agent.choice import ChoiceFiles
from edge_agent.choosing import Kept
from edge_agent.reading import Reader
from fleetgp.defaults import Choice
from fleetgp.errors import PeerError
from fleetgp.runtime.mqtt import Incoming
from fleetgp.runtime.program import Program
from fleetgp.wanted import Wanted
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import FleetModel

BATCH = 200
WAIT_S = 0.25
# a broker gives the fleet's retained model at once; so long after the connection it would have
LISTEN_S = 2.0
NOTE_S = 1.0


class Begun(NamedTuple):
    """What was chosen, and the fleet's model where it was heard (empty where not)."""

    choice: Choice
    model: bytes


class Beginning:
    """``run`` returns what was chosen, or None where the program is to stop before."""

    def __init__(self, program: Program, reader: Reader, files: ChoiceFiles, said: Wanted) -> None:
        self.program = program
        self.reader = reader
        self.files = files
        self.said = said
        self.kept: list[Kept] = list(files.readings())
        self.choice: Choice | None = None
        self.model = b""
        self.refusal = ""
        self._model_topic = topics.fleet_wide(program.fleet, "model")
        self._since_s: float | None = program.clock.monotonic_s() if self.kept else None
        self._connected_s: float | None = None
        self._next_note_s = 0.0
        self._is_warned = False

    def run(self) -> Begun | None:
        """Raises ConfigError where what the owner said fits no choice, ServiceError where the name is taken."""
        program = self.program
        program.log.info(
            f"the settings leave open: {', '.join(self.said.open)}; listening to the fleet and to the first readings"
        )
        while not program.is_stopping:
            for message in program.session.receive(BATCH, WAIT_S):
                self._take(message)
            if self.choice is None and self._is_time():
                self.choice = choosing.by_itself(self.said, self.kept, self.refusal)
            if self.choice is not None:
                return self._end(self.choice)
            program.report_health(self._figures)
            self._announce()
        return None

    def _announce(self) -> None:
        """How far it is, once a second: readings may come by the hundred."""
        now_s = self.program.clock.monotonic_s()
        if now_s < self._next_note_s:
            self.program.announce()
            return
        self._next_note_s = now_s + NOTE_S
        self._warn_once()
        note = choosing.progress(self.said, self.kept) if self.kept else self.reader.silence()
        self.program.announce(state="choosing", note="; ".join(filter(None, (note, self.refusal))))

    def _warn_once(self) -> None:
        if not self._is_warned and (missing := choosing.unheard(self.said, self.kept)):
            self._is_warned = True
            self.program.log.warning(
                f"nothing came for {', '.join(missing)} so far on {self.reader.topics}; see topic and field in [channels]"
            )

    def _is_time(self) -> bool:
        now_s = self.program.clock.monotonic_s()
        if not self.program.session.is_connected:
            self._connected_s = None
            return False
        self._connected_s = now_s if self._connected_s is None else self._connected_s
        is_heard = now_s >= self._connected_s + LISTEN_S or len(self.kept) >= 2 * choosing.MOST_KEPT
        if self._since_s is None or not is_heard:
            return False
        return choosing.is_enough(self.said, self.kept, now_s - self._since_s)

    def _end(self, choice: Choice) -> Begun | None:
        """Tell it and keep it. None where the disk refuses until the program is to stop."""
        for reason in choice.reasons:
            self.program.log.info(reason)
        if not self.program.insist(lambda: self.files.save(choice), "journal_refused", self._figures):
            return None
        return Begun(choice, self.model)

    def _take(self, message: Incoming) -> None:
        program = self.program
        if self.reader.is_for(message.topic):
            sample = self.reader.read(message)
            if sample is not None and not self._keep(choosing.kept(sample, self.said)):
                return
        elif message.topic == self._model_topic:
            self._hear(message.payload)
        elif message.topic == program.topic("status"):
            program.check_rival(message)
        program.session.ack(message)

    def _keep(self, kept: Kept) -> bool:
        """False where the disk refuses until the program is to stop: it is not to be acknowledged."""
        if not self.program.insist(lambda: self.files.add(kept), "journal_refused", self._figures):
            return False
        self.kept.append(kept)
        self._since_s = self.program.clock.monotonic_s() if self._since_s is None else self._since_s
        if len(self.kept) <= choosing.MOST_KEPT or choosing.is_enough(self.said, self.kept, 0.0):
            return True
        # nothing can be told from these: the oldest go, on the disk from time to time
        self.kept.pop(0)
        self.program.count("choosing_full", detail=choosing.progress(self.said, self.kept))
        if self.program.counts["choosing_full"] % choosing.MOST_KEPT == 0:
            return self.program.insist(lambda: self.files.rewrite(self.kept), "journal_refused", self._figures)
        return True

    def _hear(self, payload: bytes) -> None:
        try:
            model = codec.decode(payload, FleetModel)
        except PeerError as err:
            self.program.count(f"model_{err.code}", detail=err.detail)
            return
        found = choosing.from_fleet(self.said, model.schema)
        if isinstance(found, Choice):
            self.choice, self.model, self.refusal = found, payload, ""
        else:
            self.refusal = f"the fleet's choice is not taken: {found}; this agent learns without the fleet"

    def _figures(self) -> dict[str, float]:
        return {"readings_kept": float(len(self.kept))}
