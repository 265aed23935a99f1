"""The door: whatever an agent sends, the fleet's model is touched by sound messages only and every round closes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from synthetic_agents import (
    CONFIG,
    CURVED,
    PHI,
    START_MS,
    F,
    K,
    Q,
    answered,
    belief,
    bootstrap,
    close_round,
    counted,
    federated,
    open_round,
    published,
    run,
    summary,
    told,
    variances,
)

from coordinator import fleet, rounds
from coordinator.intake import INDEFINITE
from coordinator.state import BootstrapArrived, Count, Event, State, SummaryArrived
from fleetgp import features, placement
from fleetgp.gp import hyper
from fleetgp.schema import MAX_PRECISION, Channel, Covariate, Kernel, Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import to_array, to_tensor, to_triangles
from fleetgp.wire.messages import Included, Summary, Tensor

LAW = settings(max_examples=50, deadline=None, derandomize=True)

OPEN = open_round(federated())
SOUND = summary("a", OPEN, seed=1)
# a fleet in which "a" has answered and told its moments, so that a refusal has something to lose
KNOWN, _ = run(OPEN, [answered(SOUND), told(bootstrap("a"))])
CURVED_OPEN = open_round(federated(schema=CURVED))
M, D, B = CURVED.inducing, len(placement.columns(features.shape(CURVED))), len(features.BLOCKS)
P = np.array([np.eye(F), 2 * np.eye(F)])


def raw(*shape: int, value: float = 1.0) -> Tensor:
    """A tensor with any numbers, also those that an honest agent cannot send."""
    return Tensor(shape=shape, data=np.full(shape, value).astype("<f8").tobytes())


def precision(matrix: NDArray[np.float64]) -> Tensor:
    """The same matrix for every channel."""
    return to_tensor(to_triangles(np.broadcast_to(matrix, (Q, F, F))))


def assert_refused(state: State, event: Event, reason: str) -> None:
    """Counted under this reason, the very same state after, and the round closes with the model it would have had."""
    after, effects = rounds.step(state, event)
    assert after is state
    assert counted(effects) == [reason]
    assert all(e.detail for e in effects if isinstance(e, Count))
    assert published(close_round(after)[1]) == published(close_round(state)[1])


TRIANGLES = F * (F + 1) // 2
SPIKE = np.eye(F) + 10 * np.ones((F, F)) - 10 * np.eye(F)

UNSOUND_SUMMARIES: list[tuple[str, dict[str, Any], str]] = [
    ("precision of another size", {"precision": raw(Q, TRIANGLES + 1)}, "shape"),
    ("precision in square form", {"precision": raw(Q, F, F)}, "shape"),
    ("one channel too few", {"shift": raw(Q - 1, F)}, "shape"),
    ("bytes cut short", {"shift": Tensor(shape=(Q, F), data=b"\0" * 8)}, "shape"),
    ("negative shape", {"shift": Tensor(shape=(-Q, -F), data=b"\0" * 8 * Q * F)}, "shape"),
    ("enormous shape", {"shift": Tensor(shape=(2**62, 2**62), data=b"")}, "shape"),
    ("NaN in the precision", {"precision": raw(Q, TRIANGLES, value=np.nan)}, "finite"),
    ("infinity in the shift", {"shift": raw(Q, F, value=np.inf)}, "finite"),
    ("NaN count", {"count": raw(Q, value=np.nan)}, "finite"),
    ("negative count", {"count": raw(Q, value=-1.0)}, "negative"),
    ("a count beyond all time", {"count": raw(Q, value=1e300)}, "range"),
    ("zero noise", {"noise_variance": raw(Q, value=0.0)}, "negative"),
    ("negative noise", {"noise_variance": raw(Q, value=-0.5)}, "negative"),
    ("noise next to nothing", {"noise_variance": raw(Q, value=5e-324)}, "range"),
    ("noise without end", {"noise_variance": raw(Q, value=1e308)}, "range"),
    ("huge shift", {"shift": raw(Q, F, value=-1e300)}, "range"),
    ("huge precision", {"precision": precision(1e308 * np.eye(F))}, "range"),
    ("numbers that overflow a factorisation", {"precision": precision(1e308 * np.ones((F, F)))}, "range"),
    ("more precision than a deviating agent can have", {"precision": precision(np.diag(8.01 / PHI))}, "range"),
    ("the same, of no single entry", {"precision": precision(7.9 / PHI.max() * np.ones((F, F)))}, "range"),
    ("negative precision", {"precision": precision(-np.eye(F))}, "indefinite"),
    ("indefinite, with ones on the diagonal", {"precision": precision(SPIKE)}, "indefinite"),
    ("a little less than nothing", {"precision": precision(-2 * INDEFINITE * np.eye(F))}, "indefinite"),
    ("deviations of too few blocks", {"deviation_square": raw(Q, B - 1)}, "shape"),
    ("negative deviation", {"deviation_square": raw(Q, B, value=-1e-9)}, "negative"),
    ("NaN deviation", {"deviation_square": raw(Q, B, value=np.nan)}, "finite"),
    ("a deviation beyond all sense", {"deviation_square": raw(Q, B, value=1e31)}, "range"),
    ("frames near centres that are not there", {"cluster_count": raw(6), "cluster_sum": raw(6, 3)}, "shape"),
    ("another agent's", {"agent": "b"}, "other_agent"),
    ("other channels", {"signature": "1s x2 | x:identity"}, "other_schema"),
    ("a version to come", {"version": 99}, "version"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "reason"), [c[1:] for c in UNSOUND_SUMMARIES], ids=[c[0] for c in UNSOUND_SUMMARIES]
)
def test_unsound_summary_is_counted_and_changes_nothing(changes: dict[str, Any], reason: str) -> None:
    message = summary("a", KNOWN, seed=2, sequence=2, **changes)
    # the sender's encoder refuses NaN, so these bytes are made without it
    payload = msgspec.msgpack.encode(message)
    assert_refused(KNOWN, SummaryArrived(START_MS, "a", payload), reason)


@pytest.mark.parametrize(
    ("frames", "total", "reason"),
    [
        (raw(M - 1), raw(M, D), "shape"),
        (raw(M), raw(M, D - 1), "shape"),
        (raw(M), None, "shape"),
        (None, raw(M, D), "shape"),
        (raw(M, value=-1.0), raw(M, D, value=0.0), "negative"),
        (raw(M, value=np.inf), raw(M, D), "finite"),
        (raw(M), raw(M, D, value=np.nan), "finite"),
        (raw(M, value=0.0), raw(M, D, value=1e-9), "range"),
        (raw(M, value=1e16), raw(M, D), "range"),
        (raw(M), raw(M, D, value=1e31), "range"),
    ],
)
def test_unsound_sums_of_frames_are_counted_and_change_nothing(frames: Tensor, total: Tensor, reason: str) -> None:
    message = summary("a", CURVED_OPEN, cluster_count=frames, cluster_sum=total, signature=CURVED.signature())
    assert_refused(CURVED_OPEN, SummaryArrived(START_MS, "a", msgspec.msgpack.encode(message)), reason)


def test_a_term_made_under_the_scales_of_a_few_rounds_ago_is_let_in() -> None:
    """Scales move by a factor of 1.5 a round at most; an agent that is three rounds late is no liar."""
    for since in (1, 2, 3):
        before = hyper.MOST_STEP**-since * PHI
        state, effects = rounds.step(OPEN, answered(summary("a", OPEN, precision=precision(np.diag(1 / before)))))
        assert effects == []
        assert list(state.answers) == ["a"]


def test_an_agent_that_tells_neither_deviation_nor_frames_is_let_in() -> None:
    """One of an earlier version: its term counts, and scales of deviations stay where nobody tells of them."""
    state, effects = rounds.step(OPEN, answered(summary("old", OPEN)))
    assert effects == []
    state, effects = close_round(state)
    model = published(effects)
    assert list(model.included) == ["old"]
    np.testing.assert_array_equal(variances(model)[1], np.tile(PHI, (Q, 1)))
    assert state.sums == {}


def far(**changes: float) -> dict[str, Any]:
    """One input of three that no sensor has."""
    return {name: (3.0 if name != "count" else 100.0, value, 1.0) for name, value in changes.items()}


WIDE = Schema(
    channels=tuple(Channel(name=f"c{i}") for i in range(20)),
    covariates=tuple(Covariate(name=f"u{i}") for i in range(20)),
    lags=13,
)
UNSOUND_MOMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("negative count", far(count=-1.0), "negative"),
    ("half a reading", far(count=0.5), "range"),
    ("a count beyond all time", far(count=1e300), "range"),
    ("a mean beyond all sensors", far(mean=1e200), "range"),
    ("spread without end", far(sd=1e150), "range"),
    ("spread next to nothing", far(sd=1e-150), "range"),
    ("spread of no readings", {"count": to_tensor(np.zeros(K))}, "range"),
    ("too few numbers", {"mean": raw(K - 1)}, "shape"),
    ("NaN mean", {"mean": raw(K, value=np.nan)}, "finite"),
    ("negative sum of squares", {"centred_square_sum": raw(K, value=-1.0)}, "negative"),
    ("another agent's", {"agent": "b"}, "other_agent"),
    ("other channels", {"schema": Schema(channels=(Channel(name="x"),))}, "other_schema"),
    ("a schema that is none", {"schema": Schema(channels=())}, "schema"),
    ("a version to come", {"version": 2}, "version"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "reason"), [c[1:] for c in UNSOUND_MOMENTS], ids=[c[0] for c in UNSOUND_MOMENTS])
def test_unsound_moments_are_counted_and_change_nothing(changes: dict[str, Any], reason: str) -> None:
    made = {name: value for name, value in changes.items() if isinstance(value, tuple)}
    message = bootstrap("a", **made)
    changed = {name: value for name, value in changes.items() if name not in made}
    message = msgspec.structs.replace(message, sequence=2, **changed)
    assert_refused(KNOWN, BootstrapArrived(START_MS, "a", msgspec.msgpack.encode(message)), reason)


GARBAGE: list[tuple[str, bytes, str]] = [
    ("nothing", b"", "syntax"),
    ("text", b"hello", "type"),
    ("JSON", b'{"type":"summary"}', "type"),
    ("cut short", codec.encode(SOUND)[:-1], "syntax"),
    ("something behind it", codec.encode(SOUND) + b"\0", "syntax"),
    ("too large", b"\x91" * (codec.MAX_BYTES + 1), "size"),
    ("lists nested without end", b"\x91" * 100_000, "type"),
    ("the same in a field that is skipped", b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0", "depth"),
    ("another message", codec.encode(bootstrap("a")), "tag"),
    ("no map", msgspec.msgpack.encode([1, 2, 3]), "type"),
    ("a map of text", msgspec.msgpack.encode({"type": "summary", "agent": "a", "sequence": "two"}), "type"),
]  # fmt: skip


@pytest.mark.parametrize(("payload", "reason"), [c[1:] for c in GARBAGE], ids=[c[0] for c in GARBAGE])
def test_garbage_is_counted_and_changes_nothing(payload: bytes, reason: str) -> None:
    assert_refused(KNOWN, SummaryArrived(START_MS, "a", payload), reason)
    after, effects = rounds.step(KNOWN, BootstrapArrived(START_MS, "a", payload))
    assert after is KNOWN
    assert len(counted(effects)) == 1


@LAW
@given(st.binary(max_size=400), st.booleans())
@example(codec.encode(SOUND), True)
def test_no_bytes_whatever_end_a_round(payload: bytes, is_summary: bool) -> None:
    event = SummaryArrived(START_MS, "a", payload) if is_summary else BootstrapArrived(START_MS, "a", payload)
    after, effects = rounds.step(KNOWN, event)
    assert after is KNOWN
    assert len(counted(effects)) == 1
    assert published(close_round(after)[1]).round == KNOWN.round


@LAW
@given(
    st.sampled_from([codec.encode(summary("a", KNOWN, seed=2, sequence=2)), codec.encode(bootstrap("a", sequence=2))]),
    st.integers(0, 10**6),
    st.integers(1, 255),
)
def test_a_flipped_byte_is_refused_or_harmless(payload: bytes, place: int, flip: int) -> None:
    """Somewhere in a sound message: whatever comes of it, the round closes with a sound posterior."""
    damaged = bytearray(payload)
    damaged[place % len(damaged)] ^= flip
    for event in (SummaryArrived(START_MS, "a", bytes(damaged)), BootstrapArrived(START_MS, "a", bytes(damaged))):
        state, _ = rounds.step(KNOWN, event)
        assert_sound(close_round(state)[0], close_round(state)[1])


def assert_sound(state: State, effects: list[Any]) -> None:
    """Every number is finite, scales are positive, and the precision can be inverted."""
    model = published(effects)
    channels, size = model.shift.shape
    matrices, shift = belief(model)
    centre, scale = (to_array(x, (len(model.schema.inputs),), "x") for x in (model.centre, model.scale))
    noise = to_array(model.noise_variance, (channels,), "noise")
    assert np.all(np.isfinite(shift))
    assert np.all(np.isfinite(centre))
    assert np.all(scale > 0)
    assert np.all(noise > 0)
    prior = 1 / variances(model)[0]
    least = np.linalg.eigvalsh(matrices)[:, 0]
    assert np.all(least > 0.5 * prior.min(axis=1)), "rounding takes little of the prior's precision"
    assert np.linalg.cholesky(matrices).shape == (channels, size, size)
    assert state.open_round is None


def extreme(agent_id: str, *, large: float, sign: float, state: State, sequence: int) -> Summary:
    """The furthest out that the door lets in."""
    assert state.schema is not None
    assert state.feature_map is not None
    size = state.feature_map.size
    deviation_var = fleet.variances(state)[1]
    v = np.sign(np.sin(np.arange(1, size + 1) * sign))
    P = np.outer(v, v) * 0.99 * 8 / np.sum(deviation_var, axis=1)[:, None, None]
    return summary(
        agent_id,
        state,
        sequence=sequence,
        signature=state.schema.signature(),
        precision=to_tensor(to_triangles(P)),
        shift=raw(Q, size, value=sign * large),
        noise_variance=raw(Q, value=large if sign > 0 else 1 / large),
        count=raw(Q, value=1e15),
        deviation_square=raw(Q, B, value=large),
        cluster_count=raw(M, value=1e15),
        cluster_sum=raw(M, D, value=sign * 1e30),
    )


@pytest.mark.parametrize("kernel", ["se", "matern32"])
@LAW
@given(
    st.lists(
        st.tuples(
            st.sampled_from([-1e30, -1.0, 0.0, 1e-30, 1e30]),
            st.sampled_from([0.0, 1e-30, 1.0, 1e30]),
            st.sampled_from([1.0, 1e15]),
        ),
        min_size=2,
        max_size=4,
    )
)
@example([(0.0, 0.0, 1.0), (0.0, 1e-30, 1e15), (1e30, 1e30, 1e15), (0.0, 1e30, 1e15)])
def test_extremes_that_are_let_in_never_stop_a_round(kernel: Kernel, stories: list[tuple[float, float, float]]) -> None:
    """Scales that move by sixty orders of magnitude under terms of any size: what cannot be carried over is let go."""
    schema = msgspec.structs.replace(CURVED, kernel=kernel)
    state = msgspec.structs.replace(federated(schema=schema), moves=99, told_frames=1e9)
    total = 100.0
    for number, (mean, sd, grown) in enumerate(stories):
        state = open_round(state)
        total = min(1e15, total * 10 * grown)
        events: list[Event] = [
            told(bootstrap("first", schema=schema, count=total, mean=mean, sd=sd, sequence=2 + number)),
            answered(extreme("a", large=1e30, sign=1.0, state=state, sequence=2 + number)),
            answered(extreme("b", large=1e30, sign=-1.0, state=state, sequence=2 + number)),
        ]
        state, effects = run(state, events)
        assert counted(effects) == []
        state, effects = close_round(state)
        assert_sound(state, effects)


def test_ten_thousand_terms_at_the_edge_of_indefinite_leave_the_sum_definite() -> None:
    """The most agents a fleet has, each a rounding error below zero in the same direction."""
    state = OPEN
    event = answered(summary("a", state, precision=precision(-0.99e-7 * np.eye(F))))
    state, effects = rounds.step(state, event)
    assert effects == []
    crowd = {f"a{k}": state.answers["a"] for k in range(CONFIG.most_agents)}
    state = msgspec.structs.replace(state, answers=crowd)
    assert_sound(*close_round(state))


@pytest.mark.parametrize("inducing", [0, 100], ids=["linear", "with inducing inputs"])
def test_widest_schema_that_is_let_in_has_a_model_that_can_travel(inducing: int) -> None:
    """With the most agents a fleet has, under the longest names; a wider one is refused before it can become the fleet's."""
    state = open_round(rounds.init(CONFIG, START_MS))
    widest = msgspec.structs.replace(WIDE, lags=4 if inducing else 9, inducing=inducing)
    while widest.precision_size < MAX_PRECISION:
        narrower, widest = (
            widest,
            msgspec.structs.replace(
                widest, covariates=(*widest.covariates, Covariate(name=f"w{widest.precision_size}"))
            ),
        )
    payload = msgspec.msgpack.encode(bootstrap("wide", schema=widest))
    after, effects = rounds.step(state, BootstrapArrived(START_MS, "wide", payload))
    assert after is state
    assert counted(effects) == ["schema"]
    state, effects = rounds.step(state, told(bootstrap("wide", schema=narrower)))
    assert effects == []
    state = open_round(close_round(state)[0])
    if inducing:
        state = msgspec.structs.replace(state, moves=99, told_frames=1e9)
        state = open_round(close_round(state)[0])
        assert state.feature_map is not None
        assert state.feature_map.shared is not None
    longest = Included(incarnation=2**62, sequence=2**62, factor=1 / 3)
    crowd = {f"agent-{k:058}": longest for k in range(CONFIG.most_agents)}
    payload = codec.encode(msgspec.structs.replace(fleet.model(state, START_MS), included=crowd))
    assert 0.8 * codec.MAX_BYTES < len(payload) <= codec.MAX_BYTES
