"""An agent from start to end: what its owner left open is chosen once, then a brain of that schema works.

Where the fleet turns out to have chosen otherwise, a fresh brain follows it: agents that start at the same time choose each
for itself, and what one of them told the coordinator first is what the fleet shares.
"""

from __future__ import annotations

from contextlib import ExitStack

from edge_agent import choosing, memory
from edge_agent.beginning import Beginning
from edge_agent.choice import ChoiceFiles
from edge_agent.config import agent_config, agent_name, model, wiring
from edge_agent.reading import Reader
from edge_agent.service import Agent, Successor
from fleetgp.defaults import Choice
from fleetgp.errors import StorageError
from fleetgp.models import parts
from fleetgp.runtime.program import Plan, Program
from fleetgp.runtime.settings import Settings
from fleetgp.wire import topics


class Life:
    """``run`` returns when it was asked to stop. Raises ConfigError, ServiceError or StorageError where it cannot begin."""

    def __init__(self, settings: Settings) -> None:
        self.said = settings.wanted()
        name = agent_config(settings).agent_id if not self.said.open else agent_name(settings)
        self.wiring = wiring(self.said, settings.text("agent.topic"))
        fleet = settings.text("fleet")
        subscriptions = [(topic, 1) for topic in self.wiring.topics]
        # what is retained comes again and only the round of now matters: none is worth queueing while this agent is away
        of = parts(model(settings))
        kinds = ["round", *(["model"] if of.shared else []), *(["tuning"] if of.shared or of.kernel else [])]
        subscriptions += [(topics.fleet_wide(fleet, kind), 0) for kind in kinds]
        self.program = Program(settings, Plan("agent", name, tuple(subscriptions), settings.number("agent.health_s")))
        self.files = ChoiceFiles(self.program.folder, self.program.log)

    def run(self) -> None:
        """Work until stopped. Raises ServiceError when another agent of the same name is there."""
        program = self.program
        with ExitStack() as ending:
            ending.callback(program.close)
            ending.callback(self.files.close)
            choice, model = self._known(), b""
            if choice is None:
                program.start()
                begun = Beginning(program, Reader(program, self.wiring), self.files, self.said).run()
                if begun is None:
                    program.log.info("stopped before anything was chosen")
                    return
                choice, model = begun
                following = self._work(choice, model)
            else:
                following = self._work(choice, model, is_to_start=True)
            while following is not None:
                if not self._change(following.choice):
                    return
                following = self._work(following.choice, following.model)

    def _work(self, choice: Choice, model: bytes, *, is_to_start: bool = False) -> Successor | None:
        """A brain of this choice, until the end or until another choice is to be followed."""
        brain = Agent(self.program, self.said, choice)
        with ExitStack() as ending:
            ending.callback(brain.end)
            if is_to_start:
                self.program.start()
            first = choosing.samples(self.files.readings(), choice.schema)
            if not brain.begin(model, first):
                return None
            if first:
                self._forget()
            return brain.run()

    def _known(self) -> Choice | None:
        """What was said, where that is all, or chosen before; None where it is to be chosen now."""
        if not self.said.open:
            return Choice(self.said.schema(), (), "owner")
        earlier = self.files.load()
        if earlier is None:
            return None
        choice, change = choosing.remembered(self.said, earlier)
        if change:
            self.program.log.warning(change)
        if choice is not None:
            self.program.log.info(f"as chosen before: {choosing.described(choice.schema)}")
            if change:
                self.files.save(choice)
        return choice

    def _change(self, choice: Choice) -> bool:
        """Take the fleet's choice; what was learnt by the old one is put aside. False where the program is to stop."""
        program = self.program

        def write() -> None:
            self.files.save(choice)
            memory.put_aside(program.folder, "other-choice")

        if not program.insist(write, "journal_refused", dict):
            return False
        program.log.info(f"the fleet chose otherwise, and is followed; {choice.reasons[0]}")
        return True

    def _forget(self) -> None:
        try:
            self.files.forget()
        except StorageError as err:  # they are known already, should they be read again
            self.program.count("snapshot_refused", detail=str(err))
