"""The choice before the climb: which of a few candidates the nonlinear part looks through, by the evidence of the agents' frames.

A candidate rides on the close of a round as a proposal without a belief; agents answer with their message and its constant for
the frames that they keep. These are too few to pay for what is new to learn at a candidate. So they are asked again when they
keep other ones, and the messages are added up, at no cost to an agent's memory; a candidate is judged by how well the frames
of later sweeps are foreseen from those before. The best becomes the next basis when it is worth one; the climb begins there.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from coordinator import basis, fleet, tuning
from coordinator.candidates import candidates, columns
from coordinator.state import Candidate, Choice, Evidence, Likelihood, State
from coordinator.tuning import RING_FRAMES, Turn
from fleetgp.arrays import Array
from fleetgp.errors import NumericalError
from fleetgp.gp import aggregate, hyper, message, moves
from fleetgp.gp.aggregate import Belief
from fleetgp.gp.message import Term
from fleetgp.wire import codec, proposal
from fleetgp.wire.messages import Tuning

# frames of an agent, on average, from which the first sweep begins; the others as often as agents keep other frames
LEAST_FRAMES = 0.5 * RING_FRAMES
LEAST_SWEEPS, MOST_SWEEPS = 2, 6
# where they fade as fast as they come, so that their number grows no more, as often as so many times as many intervals pass
PATIENCE = 2
# nats per reading: half of what a climb needs, for the candidates were not fitted to these frames, so that little comes of chance
LEAST_GAIN = 0.0025
# prior variances of the inducing block that a candidate is judged by, the best of each channel: those of the rule are learnt on
# the live inducing inputs, and others want others
PRIOR_VARS = (0.25, 1.0, 4.0)
# numbers in the precision of all channels' weights beyond which the sums of all candidates are too much to keep
MOST_NUMBERS = 200_000


class Judgement(NamedTuple):
    """Of a candidate: nats, and prior variance [Q] of the inducing block that it has them at."""

    nats: float
    prior_var: Array


def is_over(state: State) -> bool:
    """Whether it has been made, or is none of this fleet's, so that a tuning by gradients may begin."""
    is_mixed = state.schema is not None and state.schema.is_mixed
    return state.tuning is not None or state.is_chosen or is_mixed


def is_asking(state: State) -> bool:
    """Whether a sweep is under way, through which the basis should stay."""
    return state.choice is not None and bool(state.choice.asked)


def turn(state: State, at_ms: int) -> Turn:
    """After a round: begin a sweep, ask for the next candidate, or end one."""
    if not state.config.tuning:
        if state.choice is None or not state.choice.asked:
            return Turn(state)
        return _paused(
            state, state.choice, at_ms, "a sweep through the candidates is left out: tuning was switched off"
        )
    state = _with_candidates(state)
    choice = state.choice
    if choice is None:
        return tuning.turn(state, at_ms) if state.is_chosen else Turn(state)
    if not choice.asked:
        return _begun(state, choice, at_ms) if _is_due(state, choice, at_ms) else Turn(state)
    if state.basis != choice.basis:
        return _paused(
            state, choice, at_ms, "a sweep through the candidates is left out: the basis has changed meanwhile"
        )
    if state.round < choice.since_round + state.config.tuning_rounds:
        return Turn(state)
    choice = msgspec.structs.replace(choice, heard=(*choice.heard, choice.answers), answers={})
    if len(choice.heard) < len(choice.candidates):
        return _proposed(state, choice, at_ms)
    try:
        return _swept(state, choice, at_ms)
    except NumericalError as err:
        return _paused(state, choice, at_ms, f"a sweep through the candidates is left out: {err}")


def carried(before: State, after: State) -> State:
    """The choice with its sums on another linear part, where the basis has one; the candidates are in raw inputs, and stay."""
    old, new, choice = before.feature_map, after.feature_map, after.choice
    if choice is None or old is None or new is None or new is old:
        return after
    candidates_ = choice.candidates

    def on_new(sums: tuple[Likelihood, ...]) -> tuple[Likelihood, ...]:
        taken = []
        for candidate, one in zip(candidates_, sums, strict=False):
            T, ratio = moves.change(old._replace(shared=candidate.shared), new._replace(shared=candidate.shared))
            # what the density of scaled readings changes by is the same for all candidates
            taken.append(msgspec.structs.replace(one, term=message.rebase(one.term, T, ratio)))
        return tuple(taken)

    moved = msgspec.structs.replace(choice, sums=on_new(choice.sums), first=on_new(choice.first))
    return msgspec.structs.replace(after, choice=moved)


def _with_candidates(state: State) -> State:
    """With candidates, once there are inducing inputs and frames; or without a choice, where there is none or it is too large."""
    known, schema = state.feature_map, state.schema
    if state.choice is not None or known is None or known.shared is None or schema is None:
        return state
    if schema.precision_size > MOST_NUMBERS or not columns(schema, known.shape, known.shared):
        return msgspec.structs.replace(state, is_chosen=True)
    if _frames(state) < LEAST_FRAMES:
        return state
    found = candidates(schema, known, fleet.noise(state)[0])
    return msgspec.structs.replace(state, choice=Choice(candidates=found, prior_var=fleet.variances(state)[0]))


def _frames(state: State) -> float:
    """Of an agent, on average."""
    return float(np.mean(fleet.frames(state))) if state.answers else 0.0


def _is_due(state: State, choice: Choice, at_ms: int) -> bool:
    """Whether agents keep other frames than at the last sweep."""
    frames = _frames(state)
    is_reading = frames + RING_FRAMES != choice.due
    return frames >= choice.due or (is_reading and at_ms >= choice.due_ms)


def _begun(state: State, choice: Choice, at_ms: int) -> Turn:
    assert state.schema is not None
    choice = msgspec.structs.replace(
        choice,
        basis=state.basis,
        deviation_var=fleet.variances(state)[1],
        asked=tuning.asked(state),
        began=state.steps + 1,
        heard=(),
        due=_frames(state) + RING_FRAMES,
        due_ms=at_ms + round(PATIENCE * RING_FRAMES * state.schema.interval_ms),
    )
    turned = _proposed(state, choice, at_ms)
    note = f"{len(choice.candidates)} candidates for what the basis looks at are put to {len(choice.asked)} agents"
    return turned._replace(note=note)


def _proposed(state: State, choice: Choice, at_ms: int) -> Turn:
    """Ask what the agents say to the next candidate."""
    choice = msgspec.structs.replace(choice, step=state.steps + 1, since_round=state.round, answers={})
    shared = choice.candidates[len(choice.heard)].shared
    values = {proposal.INDUCING: shared.Z, proposal.LOG_LENGTHSCALE: np.log(shared.lengthscale)}
    sent = Tuning(
        at_ms=at_ms,
        origin=state.origin,
        basis=choice.basis,
        step=choice.step,
        began=choice.began,
        asked=choice.asked,
        values=proposal.told(values),
        columns=shared.columns,
    )
    return Turn(msgspec.structs.replace(state, choice=choice, steps=choice.step), payload=codec.encode(sent))


def _swept(state: State, choice: Choice, at_ms: int) -> Turn:
    """The sums with what a sweep brought, and what follows from them: another basis, another sweep, or none any more."""
    names = sorted(set.intersection(*(set(answers) for answers in choice.heard)))
    names = [name for name in names if len({answers[name].incarnation for answers in choice.heard}) == 1]
    if len(names) < max(1.0, tuning.LEAST_SHARE * len(choice.asked)):
        note = f"a sweep is left out: {len(names)} of {len(choice.asked)} agents answered to all candidates"
        return _paused(state, choice, at_ms, note)
    choice = _added(choice, names)
    judged = [judgement(choice, k) for k in range(len(choice.candidates))]
    best = int(np.argmax([one.nats for one in judged]))
    gain = (judged[best].nats - judged[0].nats) / max(choice.readings - choice.first_readings, 1.0)
    if gain >= LEAST_GAIN and choice.sweeps >= LEAST_SWEEPS and choice.loss[best] <= moves.MOST_LOSS:
        return _taken(state, choice.candidates[best], judged[best], choice.loss[best], gain, at_ms)
    if choice.sweeps < LEAST_SWEEPS:
        return _paused(state, choice, at_ms, f"{len(names)} agents told of the candidates for a first time")
    word = f"{choice.candidates[best].name} is {gain:.4f} nats per reading better in {choice.sweeps - 1} sweeps"
    if choice.sweeps < MOST_SWEEPS:
        return _paused(state, choice, at_ms, word)
    over = msgspec.structs.replace(state, choice=None, is_chosen=True)
    return tuning.ended(over, at_ms, f"the basis looks on at what it did: {word}, no reason to change")


def _added(choice: Choice, names: list[str]) -> Choice:
    """The choice with these agents' answers of a sweep in its sums."""
    sums = []
    for k, heard in enumerate(choice.heard):
        answers = [heard[name] for name in names]
        sums.append(_sum(choice.sums[k] if choice.sums else None, answers))
    loss = tuple(float(np.median([heard[name].loss for name in names])) for heard in choice.heard)
    readings = choice.readings + sum(choice.heard[0][name].readings for name in names)
    choice = msgspec.structs.replace(
        choice, sums=tuple(sums), readings=readings, sweeps=choice.sweeps + 1, loss=loss, heard=()
    )
    return choice if choice.first else msgspec.structs.replace(choice, first=choice.sums, first_readings=readings)


def _sum(before: Likelihood | None, answers: list[Evidence]) -> Likelihood:
    precision = sum((one.term.precision for one in answers), np.zeros_like(answers[0].term.precision))
    shift = sum((one.term.shift for one in answers), np.zeros_like(answers[0].term.shift))
    constant = sum(one.constant + one.log_prior for one in answers)
    if before is None:
        return Likelihood(Term(precision, shift), constant)
    term = Term(before.term.precision + precision, before.term.shift + shift)
    return Likelihood(term, before.constant + constant)


def judgement(choice: Choice, number: int) -> Judgement:
    """Log density of the later sweeps' readings given the first one's, at the prior variance of the inducing block, by channel,
    that makes it largest."""
    inducing = len(choice.candidates[number].shared.Z)
    every, first = choice.sums[number], choice.first[number]
    scores = np.empty((len(PRIOR_VARS), len(every.term.shift)))
    for row, variance in enumerate(PRIOR_VARS):
        prior_var = choice.prior_var.copy()
        prior_var[:, -inducing:] = variance
        scores[row] = _evidence(every.term, prior_var) - _evidence(first.term, prior_var)
    nats = float(np.sum(scores.max(axis=0))) + every.constant - first.constant
    return Judgement(nats, np.array(PRIOR_VARS)[scores.argmax(axis=0)])


def _evidence(term: Term, prior_var: Array) -> Array:
    """Log evidence [Q] of a sum of terms, without its constant."""
    before = aggregate.prior(prior_var).precision
    parts = [slice(q, q + 1) for q in range(len(prior_var))]
    return np.array(
        [aggregate.log_evidence(Belief(before[q] + term.precision[q], term.shift[q]), prior_var[q]) for q in parts]
    )


def _taken(state: State, best: Candidate, judged: Judgement, loss: float, gain: float, at_ms: int) -> Turn:
    """The best candidate as the next basis."""
    feature_map = state.feature_map
    assert feature_map is not None
    assert state.scales is not None
    shared = state.scales.shared.copy()
    shared[:, basis.INDUCING] = np.clip(judged.prior_var, hyper.FLOOR, hyper.CEILING)
    state = msgspec.structs.replace(
        state, scales=state.scales._replace(shared=shared), choice=None, is_chosen=True, tuned_on=0.0
    )
    moved = basis.tuned(state, feature_map._replace(shared=best.shared), loss)
    return tuning.ended(moved, at_ms, f"new basis: it looks at {best.name}, {gain:.4f} nats per reading better", gain)


def _paused(state: State, choice: Choice, at_ms: int, note: str) -> Turn:
    """No sweep is under way any more; agents let go of the frames that they kept for it."""
    choice = msgspec.structs.replace(choice, asked=(), heard=(), answers={})
    return tuning.ended(msgspec.structs.replace(state, choice=choice), at_ms, note)
