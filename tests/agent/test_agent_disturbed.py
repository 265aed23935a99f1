"""Agents that miss models, are stopped in the middle of an anomaly, and live through every kind of change of basis."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from agent_streams import Hub

from coordinator import fleet
from coordinator import state as coordination
from edge_agent import agent
from edge_agent.state import Effect, Event, ModelArrived, State
from fleetgp.arrays import Array
from fleetgp.gp import aggregate, message
from fleetgp.schema import Channel, Schema
from fleetgp.wire.freeze import freeze, thaw

CURVED = Schema(channels=(Channel(name="a"), Channel(name="b")), inducing=6)
NAMES = ("left", "middle", "right")
ROUNDS, FRAMES, LEAP = 20, 60, 10


def curved_rows(seed: int) -> Iterator[Array]:
    """A pulls on b along a curve. After LEAP rounds, 600 frames, all leaps tenfold, for good: another scale and normal."""
    rng = np.random.default_rng(seed)
    a, b = 0.0, 0.0
    for tick in range(ROUNDS * FRAMES):
        b = 0.8 * b + np.sin(2 * a) + 0.3 * rng.standard_normal()
        a = 0.9 * a + 0.4 * rng.standard_normal()
        yield np.array([a, b]) if tick < LEAP * FRAMES else 10.0 * np.array([a, b]) + 40.0


class Disturbed(Hub):
    """A fleet whose agents are stopped and resumed after some events, and miss some models."""

    def __init__(self, stops: float, misses: float) -> None:
        super().__init__(CURVED, NAMES)
        self.stops, self.misses = stops, misses
        self.coin, self.luck = np.random.default_rng(1), np.random.default_rng(2)
        self.shadows = 0

    def give(self, name: str, event: Event) -> list[Effect]:
        if isinstance(event, ModelArrived) and self.luck.random() < self.misses:
            return []
        self.agents[name], effects = agent.step(self.agents[name], event)
        if self.coin.random() < self.stops:
            self.shadows += self.agents[name].shadow is not None
            self.agents[name] = thaw(freeze(self.agents[name]), State)
        return effects


def lived(stops: float = 0.0, misses: float = 0.0) -> Iterator[Disturbed]:
    """A fleet after each of its rounds."""
    hub = Disturbed(stops, misses)
    rows = {name: curved_rows(seed) for seed, name in enumerate(NAMES)}
    for _ in range(ROUNDS):
        hub.read(rows, FRAMES)
        hub.round()
        yield hub


def others(known: coordination.State, name: str) -> aggregate.Belief:
    """What all agents but one told, as the coordinator holds it."""
    answers = [answer for other, answer in sorted(known.answers.items()) if other != name]
    terms = (message.scaled(answer.term, fleet.factor(known, answer)) for answer in answers)
    return aggregate.posterior(terms, fleet.variances(known)[0])


@pytest.mark.parametrize("misses", [0.0, 0.3])
def test_in_every_round_an_agent_knows_what_the_others_told_and_no_more_1e_9(misses: float) -> None:
    """Through a first basis, inducing inputs that join, and another scale; also where models did not arrive."""
    kinds = set()
    for hub in lived(misses=misses):
        known = hub.coordinator
        for name, state in hub.agents.items():
            if state.round != known.round or not state.basis:
                continue  # it missed this one
            assert state.learner is not None
            assert state.learner.knowledge.own_weight == 1.0
            for told, expected in zip(state.learner.knowledge.belief, others(known, name), strict=True):
                np.testing.assert_allclose(told, expected, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))
            kinds.add((state.basis, state.learner.basis.shared is not None))
    assert {is_curved for _, is_curved in kinds} == {False, True}
    assert len(kinds) >= 3


def test_stopped_anywhere_a_fleet_goes_on_as_if_it_never_was() -> None:
    """In calm and anomaly, with a shadow under way, before and after every basis: the same states to the last bit."""
    *_, never = lived()
    *_, stopped = lived(stops=0.03)
    assert stopped.shadows > 1
    assert stopped.model == never.model
    for name in NAMES:
        assert freeze(stopped.agents[name]) == freeze(never.agents[name])
