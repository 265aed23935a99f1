"""The slow clock: the fleet's basis learnt by gradients of the evidence on the agents' recent frames, while rounds go on.

A step rides on the close of a round. Agents answer a proposal with their message, its constant, and a gradient under the
fleet's belief of the step before; the coordinator adds them up, takes a step that lowered the evidence back, and goes on by
Adam. What counts in the end are frames that were held out: the step that foresees them best becomes the next basis, if it does
so by enough (docs/adr/0015).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from coordinator import fleet, proposals
from coordinator.state import Ascent, Chosen, Evidence, HeldOut, Place, State
from fleetgp.arrays import Array
from fleetgp.errors import NotFinite, NumericalError
from fleetgp.gp import aggregate, ascent, moves
from fleetgp.wire import codec, proposal
from fleetgp.wire.messages import Included, Tuning

# frames of the fleet for each value that is learnt, and how much more of them another tuning needs
FRAMES_PER_VALUE = 5.0
GROWTH = 4.0
RING_FRAMES = 512.0
# agents that are asked at most: so many tell where to go, and what they send stays bounded however large the fleet
MOST_ASKED = 32
# of those asked, the share that must have answered
LEAST_SHARE = 0.25
# of scaled inputs and log lengthscales: how far a first step goes, what later ones go of that, and after one taken back
RATE = 0.15
DECAY = 0.95
BACK = 0.5
LEAST_RATE = 0.01
MOST_STEPS = 24
# rounds after one that was given up for want of answers: agents that were restarted are back by then, or updated
REST_ROUNDS = 50
# steps in a row that foresee frames held out better than an earlier one by less than this, and end a tuning
STILL_STEPS, STILL = 5, 5e-4
# An agent's slope counts up to so many times the fleet's median, per reading: no single one draws the basis alone.
MOST_PULL = 5.0
# What a basis must gain, in nats per reading of frames held out. A past of which a share e of the noise is lost foresees e / 2
# nats worse at first; and on a few hundred frames of agents that one weather moves, the gain of the best of some steps errs by
# half a hundredth.
LEAST_GAIN = 0.01
# of evidence: a nat for each of some ten values on a few thousand readings comes of chance (Akaike 1974); and other loadings lose
# nothing of a past
LEAST_JOINERS_GAIN = 0.005
# nats per reading that one agent's gain counts for at most
MOST_GAIN = 1.0


class Turn(NamedTuple):
    """What came of a round's close: the state, a word on it, what the new basis gained in nats per reading where there is one,
    and an encoded Tuning to publish where there is one."""

    state: State
    note: str = ""
    gain: float | None = None
    payload: bytes = b""


def turn(state: State, at_ms: int) -> Turn:
    """After a round: begin a tuning, take a step of it, or end it."""
    tune = state.tuning
    if tune is None:
        return _begun(state, at_ms) if _is_due(state) else Turn(state)
    if not state.config.tuning:
        return ended(state, at_ms, "tuning given up: it was switched off")
    if state.basis != tune.basis:
        again = msgspec.structs.replace(state, tuned_on=0.0)
        return ended(again, at_ms, "tuning given up: the basis has changed meanwhile")
    if state.round < tune.since_round + state.config.tuning_rounds:
        return Turn(state)
    if len(tune.answers) < max(1.0, LEAST_SHARE * len(tune.asked)):
        return _unanswered(state, at_ms, f"{len(tune.answers)} of {len(tune.asked)} agents answered")
    try:
        tune = _stepped(tune)
        return _concluded(state, tune, at_ms) if _is_over(tune) else _proposed(state, tune, at_ms)
    except NumericalError as err:
        return _unanswered(state, at_ms, str(err))


def _unanswered(state: State, at_ms: int, why: str) -> Turn:
    """No tuning any more that says nothing of the basis: another one needs no more frames than this, but some patience."""
    rested = msgspec.structs.replace(state, rests_until=state.round + REST_ROUNDS)
    return ended(rested, at_ms, f"tuning given up: {why}")


def _is_due(state: State) -> bool:
    """Whether the fleet has read enough for a first tuning, or so much more than at the last one; or has another basis."""
    if not state.config.tuning or not state.answers or not proposals.can_begin(state):
        return False
    values = sum(value.size for value in proposals.start(state).values())
    frames = fleet.frames(state)
    enough = [min(one, RING_FRAMES) for one in frames if one >= proposals.least_frames(state)]
    if 2 * len(enough) < len(frames) or sum(enough) < FRAMES_PER_VALUE * values:
        return False
    is_rested = bool(state.rests_until) and state.round >= state.rests_until
    return is_rested or not state.tuned_on or sum(frames) >= GROWTH * state.tuned_on


def _begun(state: State, at_ms: int) -> Turn:
    values = proposals.start(state)
    prior_var, deviation_var = proposals.variances(state)
    tune = Ascent(
        basis=state.basis,
        prior_var=prior_var,
        deviation_var=deviation_var,
        middle=values,
        began=state.steps + 1,
        step=state.steps,
        asked=asked(state),
        since_round=state.round,
        values=values,
        rate=RATE,
        moments=ascent.still(values),
    )
    begun = msgspec.structs.replace(state, tuned_on=sum(fleet.frames(state)), rests_until=0)
    turned = _proposed(begun, tune, at_ms)
    return turned._replace(note=f"a tuning of the basis begins with {len(tune.asked)} agents")


def asked(state: State) -> tuple[str, ...]:
    """Those that answered the last rounds, other ones at another tuning."""
    names = sorted(state.answers, key=lambda name: (-state.answers[name].round, name))
    if len(names) <= MOST_ASKED:
        return tuple(sorted(names))
    first = state.steps % len(names)
    return tuple(sorted((names[first:] + names[:first])[:MOST_ASKED]))


def _proposed(state: State, tune: Ascent, at_ms: int) -> Turn:
    """Ask what the agents say to the values of a tuning."""
    tune = msgspec.structs.replace(tune, step=tune.step + 1, since_round=state.round, answers={})
    precision = shift = None
    included = {}
    if tune.best is not None:
        precision, shift = proposal.belief_of(*tune.best.belief)
        included = {
            name: Included(incarnation=one.incarnation, sequence=one.step, factor=1.0)
            for name, one in sorted(tune.best.answers.items())
        }
    message = Tuning(
        at_ms=at_ms,
        origin=state.origin,
        basis=tune.basis,
        step=tune.step,
        began=tune.began,
        asked=tune.asked,
        is_back=tune.is_back,
        values=proposal.told(proposals.written(state, tune.values)),
        columns=proposals.columns(state),
        precision=precision,
        shift=shift,
        included=included,
    )
    return Turn(msgspec.structs.replace(state, tuning=tune, steps=tune.step), payload=codec.encode(message))


def ended(state: State, at_ms: int, note: str, gain: float | None = None) -> Turn:
    """No tuning is under way any more; agents let go of the frames that they kept for it."""
    message = Tuning(at_ms=at_ms, origin=state.origin, basis=state.basis, step=state.steps, began=state.steps)
    return Turn(msgspec.structs.replace(state, tuning=None), note, gain, codec.encode(message))


def _stepped(tune: Ascent) -> Ascent:
    """The tuning after the answers to its proposal, with the next one. Raises NumericalError where no number comes of them."""
    here, best = _place(tune), tune.best
    if best is None:
        # the same values again: now that the fleet's belief is known, slopes can be told. Whoever has not answered now is not
        # asked any more: with others' frames in the belief, everybody foresees otherwise, whatever the basis.
        return msgspec.structs.replace(tune, best=here, asked=tuple(sorted(tune.answers)))
    if not here.slope:
        raise NotFinite("no agent told a gradient")
    if tune.first is None:
        first = {
            name: HeldOut(one.incarnation, one.held_out, one.held_out_readings) for name, one in tune.answers.items()
        }
        return _moved(msgspec.structs.replace(tune, first=first), here, tune.rate)
    rise = _rise(tune, best, here)
    tune = _chosen(msgspec.structs.replace(tune, risen=tune.risen + max(rise, 0.0)), tune.first, here)
    if rise >= 0.0:
        return _moved(msgspec.structs.replace(tune, is_back=False), here, DECAY * tune.rate)
    back = msgspec.structs.replace(tune, is_back=True, taken_back=tune.taken_back + 1)
    return _moved(back, best, BACK * tune.rate)


def _moved(tune: Ascent, best: Place, rate: float) -> Ascent:
    """The tuning with a proposal that is a step from its best one."""
    moved, moments = ascent.step(best.values, best.slope, best.moments, rate)
    return msgspec.structs.replace(
        tune,
        values=proposals.bounded(moved),
        moments=moments,
        rate=rate,
        best=best,
        prior_var=proposals.improved(best.values, best.prior_var, best.belief),
    )


def _chosen(tune: Ascent, first: dict[str, HeldOut], here: Place) -> Ascent:
    """The tuning with this step chosen, where it is better than any before: foresees held-out frames better, or, where what is
    shared serves those that join more than those that know their own frames, has more evidence."""
    gain = min(tune.risen, MOST_GAIN) if proposals.is_for_joiners(tune.values) else _gain(first, tune.answers)
    best = tune.chosen.gain if tune.chosen is not None else 0.0
    still = tune.still + 1 if gain < best + STILL else 0
    if gain <= best:
        return msgspec.structs.replace(tune, still=still)
    loss = float(np.median([one.loss for one in tune.answers.values()]))
    return msgspec.structs.replace(tune, chosen=Chosen(here.values, here.prior_var, gain, loss), still=still)


def _gain(first: dict[str, HeldOut], answers: dict[str, Evidence]) -> float:
    """Nats per reading by which a step foresees held-out frames better than the live basis; nothing where it does not for most
    of the agents: no single one makes a basis, whatever it tells."""
    gains, readings = [], []
    for name, now in sorted(answers.items()):
        before = first.get(name)
        is_same = before is not None and (before.incarnation, before.readings) == (
            now.incarnation,
            now.held_out_readings,
        )
        if before is not None and is_same and before.readings:
            gains.append((now.held_out - before.nats) / before.readings)
            readings.append(before.readings)
    if not gains or float(np.median(gains)) <= 0.0:
        return 0.0
    return float(np.average(np.clip(gains, -MOST_GAIN, MOST_GAIN), weights=readings))


def _place(tune: Ascent) -> Place:
    """Where the tuning is, from what was answered; agents in order of their names, so that the bits are always the same.

    One that did not answer has its part in the belief all the same, as it was at the best step.
    """
    answers = {**(tune.best.answers if tune.best is not None else {}), **tune.answers}
    belief = aggregate.posterior((answer.term for _, answer in sorted(answers.items())), tune.prior_var)
    return Place(tune.step, tune.values, answers, belief, _slope(tune), tune.moments, tune.prior_var)


def _slope(tune: Ascent) -> dict[str, Array]:
    """Sum of the agents' slopes, each held to MOST_PULL, and of the prior's; empty where no agent told any."""
    told = [answer for _, answer in sorted(tune.answers.items()) if answer.slopes]
    if not told:
        return {}
    sizes = [np.sqrt(sum(float(np.sum(slope**2)) for slope in one.slopes.values())) / one.readings for one in told]
    most = MOST_PULL * float(np.median(sizes))
    _, total = proposals.log_prior(tune.values, tune.middle)
    for size, one in zip(sizes, told, strict=True):
        share = min(1.0, most / size) if size > 0 else 1.0
        total = {name: slope + share * one.slopes[name] for name, slope in total.items()}
    return total


def _rise(tune: Ascent, best: Place, here: Place) -> float:
    """Nats per reading by which one place has more evidence than another, by the agents that answered at both.

    Raises NotFinite where there are too few of these.
    """
    both = _both(best, here)
    if len(both) < max(1.0, LEAST_SHARE * len(tune.asked)):
        raise NotFinite("other agents answered than before")
    readings = sum(here.answers[name].readings for name in both)
    return (_score(tune, here, both) - _score(tune, best, both)) / readings


def _both(one: Place, other: Place) -> list[str]:
    """Agents that answered at both steps, with the same frames: one that lost its memory has others."""
    return [
        name
        for name in sorted(one.answers)
        if one.answers[name].step == one.step
        and other.answers[name].step == other.step
        and one.answers[name].incarnation == other.answers[name].incarnation
    ]


def _score(tune: Ascent, place: Place, names: list[str]) -> float:
    """Log evidence of these agents' readings and log prior of all values, in nats."""
    answers = [place.answers[name] for name in sorted(names)]
    belief = place.belief
    if len(answers) < len(place.answers):
        belief = aggregate.posterior((answer.term for answer in answers), place.prior_var)
    score = aggregate.log_evidence(belief, place.prior_var) + proposals.log_prior(place.values, tune.middle)[0]
    return score + sum(answer.constant + answer.log_prior for answer in answers)


def _is_over(tune: Ascent) -> bool:
    is_long = tune.step - tune.began + 1 >= MOST_STEPS
    return is_long or tune.still >= STILL_STEPS or tune.rate < LEAST_RATE


def _concluded(state: State, tune: Ascent, at_ms: int) -> Turn:
    """The best step as the next basis, where it gains enough and little enough is lost by it."""
    word = f"{tune.step - tune.began + 1} steps, {tune.taken_back} taken back"
    chosen = tune.chosen
    if chosen is None:
        return ended(state, at_ms, f"tuning over ({word}): no better basis was found")
    gain = f"{chosen.gain:.4f} nats per reading"
    least = LEAST_JOINERS_GAIN if proposals.is_for_joiners(tune.values) else LEAST_GAIN
    if not chosen.loss <= moves.MOST_LOSS or not chosen.gain >= least + chosen.loss / 2:
        return ended(state, at_ms, f"tuning over ({word}): {gain} are not worth what a new basis loses")
    moved = proposals.tuned(state, chosen)
    return ended(moved, at_ms, f"new basis: learnt by gradients ({word}), {gain} better", chosen.gain)
