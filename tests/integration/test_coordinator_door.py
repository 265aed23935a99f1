"""What a broken or hostile agent can send to a running coordinator: each is counted, and the rounds go on."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
from bench import FLEET, Bench, Desk

from broker_bridge.broker import EmbeddedBroker
from fleetgp import features
from fleetgp.schema import Channel, Schema
from fleetgp.wire import codec, topics
from fleetgp.wire.convert import to_array, to_tensor, to_triangles
from fleetgp.wire.messages import Bootstrap, FleetModel, Summary, Tensor

pytestmark = pytest.mark.broker

SCHEMA = Schema(channels=(Channel(name="flow"), Channel(name="dust")))
Q, F = 2, features.Shape(2, 2, 0).linear


def bootstrap(agent: str, **changes: object) -> Bootstrap:
    honest = Bootstrap(
        at_ms=1_700_000_000_000, agent=agent, incarnation=1, sequence=1, schema=SCHEMA,
        count=to_tensor(np.full(Q, 100.0)), mean=to_tensor(np.array([5.0, 7.0])),
        centred_square_sum=to_tensor(np.array([400.0, 25.0])),
    )  # fmt: skip
    return msgspec.structs.replace(honest, **changes)


def summary(agent: str, model: FleetModel, **changes: object) -> Summary:
    """A term that readings lead to: 50 frames of independent features, and a pull of the shared weights."""
    honest = Summary(
        at_ms=1_700_000_001_000, agent=agent, incarnation=1, sequence=2, round=model.round, origin=model.origin,
        basis=model.basis, signature=SCHEMA.signature(), precision=to_tensor(to_triangles(np.stack([np.eye(F)] * Q))),
        shift=to_tensor(np.full((Q, F), 0.2)), count=to_tensor(np.full(Q, 50.0)),
        noise_variance=to_tensor(np.full(Q, 0.5)),
    )  # fmt: skip
    return msgspec.structs.replace(honest, **changes)


def filled(shape: tuple[int, ...], value: float) -> Tensor:
    """Past the check of what we send ourselves."""
    return Tensor(shape=shape, data=np.full(shape, value).tobytes())


def bad_summaries(model: FleetModel) -> list[tuple[str, bytes, str]]:
    """(agent, payload, what it is counted as)"""

    def one(reason: str, agent: str, **changes: object) -> tuple[str, bytes, str]:
        return agent, codec.encode(summary(agent, model, **changes)), reason

    triangle = F * (F + 1) // 2
    indefinite = np.stack([np.diag([1.0] * (F - 1) + [-0.5])] * Q)
    return [
        ("f-1", codec.encode(summary("f-1", model))[:-9], "syntax"),
        ("f-2", b'{"type": "summary"}', "type"),
        ("f-3", codec.encode(bootstrap("f-3")), "tag"),
        ("f-4", codec.encode(summary("a-1", model)), "other_agent"),
        one("finite", "f-5", precision=filled((Q, triangle), np.nan)),
        one("finite", "f-6", shift=filled((Q, F), np.inf)),
        one("shape", "f-7", precision=filled((Q, 3), 1.0)),
        one("shape", "f-8", shift=Tensor(shape=(Q, F), data=b"1234")),
        one("negative", "f-9", count=filled((Q,), -1.0)),
        one("negative", "f-10", noise_variance=filled((Q,), 0.0)),
        one("indefinite", "f-11", precision=to_tensor(to_triangles(indefinite))),
        one("range", "f-12", precision=filled((Q, triangle), 1.7e308)),
        one("range", "f-13", shift=filled((Q, F), 1.7e308)),
        one("stale_basis", "f-14", basis=model.basis + 7),
        one("stale_basis", "f-15", origin=model.origin - 1),
        one("other_schema", "f-16", signature="60s x2 | flow:identity"),
        one("version", "f-17", version=99),
    ]


def test_a_bad_summary_is_counted_and_the_rounds_go_on(bench: Bench, desk: Desk, any_broker: EmbeddedBroker) -> None:
    """Whatever fake agents send, the model that comes back is finite and made of the honest ones alone; a restart too."""

    def model() -> FleetModel | None:
        return (desk.of(FleetModel, topics.fleet_wide(FLEET, "model")) or [None])[-1]

    def send(agent: str, kind: str, payload: bytes) -> None:
        desk.say(topics.agent(FLEET, agent, kind), payload)

    coordinator = bench.start("coordinator", coordinator__round_s=1, coordinator__answer_s=0.2)
    desk.until(lambda: desk.is_online("coordinator"))
    assert "no agent has answered yet" in desk.status("coordinator").note
    for agent in ("a-1", "a-2"):
        send(agent, "bootstrap", codec.encode(bootstrap(agent)))
    for agent, changes in {
        "f-1": {"count": filled((Q,), -5.0)},
        "f-2": {"mean": filled((Q,), np.nan)},
        "f-3": {"mean": filled((Q,), 1.7e308), "centred_square_sum": filled((Q,), 1.7e308)},
        "f-4": {"schema": Schema(channels=(Channel(name="other"),)), **{
            name: filled((1,), 1.0) for name in ("count", "mean", "centred_square_sum")}},
    }.items():  # fmt: skip
        send(agent, "bootstrap", codec.encode(bootstrap(agent, **changes)))
    desk.until(lambda: model() is not None)
    first = model()
    assert first is not None
    np.testing.assert_allclose(to_array(first.centre, (Q,), "centre"), [5.0, 7.0], rtol=1e-12)
    honest = [codec.encode(summary(agent, first)) for agent in ("a-1", "a-2")]
    for agent, payload in zip(("a-1", "a-2"), honest, strict=True):
        send(agent, "summary", payload)
        send(agent, "summary", payload)  # at least once means twice at times
    expected = Counter({"negative": 1, "finite": 1, "range": 1, "other_schema": 1, "repeated": 2, "oversized": 1})
    for agent, payload, reason in bad_summaries(first):
        send(agent, "summary", payload)
        expected[reason] += 1
    desk.flush()
    desk.say_once(topics.agent(FLEET, "f-18", "summary"), bytes(9_000_000))
    desk.until(lambda: desk.dropped("coordinator", "oversized"))
    assert {reason: desk.dropped("coordinator", reason) for reason in expected} == expected

    closed = desk.rounds("closed")[-1].round
    desk.until(lambda: desk.rounds("closed")[-1].round >= closed + 2)
    assert desk.rounds("closed")[-1].included == ("a-1", "a-2")
    assert_is_the_honest_sum(model())
    coordinator.kill()
    coordinator = bench.start("coordinator", coordinator__round_s=1, coordinator__answer_s=0.2)
    closed = desk.rounds("closed")[-1].round
    desk.until(lambda: desk.rounds("closed")[-1].round >= closed + 2)
    assert_is_the_honest_sum(model())
    assert coordinator.stop() == 0
    assert "Traceback" not in coordinator.said


def assert_is_the_honest_sum(model: FleetModel | None) -> None:
    """The prior that is published with it, and both honest terms. 1e-3: they have aged by some rounds of 10,000 (half-life)."""
    assert model is not None
    assert model.prior_variance is not None
    prior = 1 / to_array(model.prior_variance, (Q, F), "prior_variance")
    honest = np.stack([np.diag(one) + 2 * np.eye(F) for one in prior])
    assert set(model.included) == {"a-1", "a-2"}
    np.testing.assert_allclose(
        to_array(model.precision, (Q, F * (F + 1) // 2), "precision"), to_triangles(honest),
        rtol=1e-3,
    )  # fmt: skip
    np.testing.assert_allclose(to_array(model.shift, (Q, F), "shift"), np.full((Q, F), 0.4), rtol=1e-3)
