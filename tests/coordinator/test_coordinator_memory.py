"""The coordinator's state as bytes, and how large it becomes."""

from __future__ import annotations

import msgspec
from synthetic_agents import (
    CONFIG,
    START_MS,
    answered,
    bootstrap,
    close_round,
    federated,
    open_round,
    run,
    story,
    summary,
    told,
)

from coordinator import rounds
from coordinator.state import CoordinatorConfig, State
from fleetgp.wire.freeze import freeze, thaw

FRESH = rounds.init(CONFIG, START_MS)
STORY = story()


def test_state_thaws_to_the_same_bits_at_every_point_of_a_story() -> None:
    """A round open or not, moments, terms, a scale: and what follows from it is the same as well."""
    state = FRESH
    for number, event in enumerate(STORY):
        state, _ = rounds.step(state, event)
        again = thaw(freeze(state), State)
        assert freeze(again) == freeze(state)
        if number % 7 == 0:
            assert freeze(run(again, STORY[number + 1 :])[0]) == freeze(run(state, STORY[number + 1 :])[0])


def test_coordinator_runs_ten_thousand_rounds_in_the_same_memory() -> None:
    """With agents that come, answer a few times and go for good: the state is no larger in the end than near the start."""
    config = CoordinatorConfig(round_s=60.0, answer_s=5.0, half_life_rounds=1.0)
    state = federated(config)
    sizes = []
    answers = [summary("x", state, seed=seed) for seed in range(4)]
    for number in range(10_000):
        state = open_round(state)
        if number % 3 == 0:
            name = f"agent-{number // 9}"
            said = msgspec.structs.replace(answers[number % 4], agent=name, sequence=1 + number, basis=state.basis)
            state, effects = run(state, [told(bootstrap(name, sequence=1 + number)), answered(said)])
            assert effects == []
        state, _ = close_round(state)
        if number % 500 == 499:
            sizes.append(len(freeze(state)))
    assert state.round == 10_001
    assert max(sizes[10:]) <= 1.02 * max(sizes[:10])
