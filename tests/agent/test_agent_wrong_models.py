"""Models that are wrong, damaged or beyond all sense: counted and ignored, and the agent goes on as it was."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from agent_streams import START, Hub, counts, fresh, hub_of, readings, run
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent import agent
from edge_agent.state import ModelArrived, Publish, State
from fleetgp import features
from fleetgp.schema import Channel, Schema
from fleetgp.wire import codec
from fleetgp.wire.convert import to_array, to_tensor
from fleetgp.wire.freeze import freeze
from fleetgp.wire.messages import FleetModel, Included, Tensor

MODEST = settings(max_examples=60, deadline=None, derandomize=True)
F = features.Shape(2, 2, 0).linear


@pytest.fixture(scope="module")
def late_hub() -> Hub:
    return hub_of(3)


def raw(*numbers: float) -> Tensor:
    return Tensor(shape=(len(numbers),), data=struct.pack(f"<{len(numbers)}d", *numbers))


def spoilt(model: FleetModel) -> dict[str, FleetModel]:
    other = Schema(channels=(Channel(name="a"), Channel(name="c")))
    triangles = to_array(model.precision, (2, F * (F + 1) // 2), "precision")
    replace: Any = msgspec.structs.replace
    return {
        "another schema": replace(model, schema=other),
        "another interval": replace(model, schema=msgspec.structs.replace(model.schema, interval_s=2.0)),
        "a scale of nothing": replace(model, scale=raw(1.0, 0.0)),
        "a negative scale": replace(model, scale=raw(1.0, -1.0)),
        "a centre that is no number": replace(model, centre=raw(1.0, float("nan"))),
        "an infinite noise": replace(model, noise_variance=raw(1.0, float("inf"))),
        "no noise": replace(model, noise_variance=raw(1.0, 0.0)),
        "no deviation": replace(model, deviation_variance=to_tensor(np.zeros((2, F)))),
        "no deviation, told as of old": replace(model, deviation_variance=None, deviation_scale=raw(*[0.0] * F)),
        "too few numbers": replace(model, deviation_variance=raw(1.0)),
        "too few numbers, told as of old": replace(model, deviation_variance=None, deviation_scale=raw(1.0)),
        "a prior of nothing": replace(model, prior_variance=to_tensor(np.zeros((2, F)))),
        "inducing inputs that nobody wants": replace(model, inducing=raw(1.0), lengthscale=raw(1.0), columns=(0,)),
        "a shape that lies": replace(model, shift=Tensor(shape=(2, F), data=b"12345678")),
        "a precision that is no number": replace(
            model, precision=Tensor(shape=triangles.shape, data=b"\xff" * 8 * triangles.size)
        ),
        "a negative precision": replace(model, precision=to_tensor(-triangles)),
        "an indefinite precision": replace(model, precision=to_tensor(triangles * np.array([[1.0], [0.0]]))),
        "numbers beyond all sense": replace(model, precision=to_tensor(1e300 * triangles)),
        "a scale beyond all sense": replace(model, scale=raw(1e-300, 1e-300)),
        "a centre beyond all sense": replace(model, centre=raw(1e300, 1e300)),
        "more of the agent than it sent": replace(
            model,
            included={
                n: Included(incarnation=i.incarnation, sequence=i.sequence, factor=1e9)
                for n, i in model.included.items()
            },
        ),
    }


def check_harmless(state: State, payload: bytes, row: list[float]) -> None:
    """A model that was refused leaves the agent as it was and is counted once; one that was taken predicts numbers."""
    after, effects = agent.step(state, ModelArrived(START, payload))
    if after is not state:
        assert effects == []
        _, effects = run(after, [readings(10_000, row), readings(10_001, row)])
        for effect in effects:
            if isinstance(effect, Publish):
                codec.encode(effect.message)
        return
    assert sum(counts(effects).values()) <= 1
    assert all(reason.startswith("model_") or reason == "numerical" for reason in counts(effects))


@pytest.mark.parametrize("which", list(spoilt(codec.decode(hub_of(3).model, FleetModel))))
def test_a_model_that_is_wrong_is_counted_and_ignored(late_hub: Hub, which: str) -> None:
    good = codec.decode(late_hub.model, FleetModel)
    wrong = msgspec.structs.replace(spoilt(good)[which], round=good.round + 1)
    payload = msgspec.msgpack.encode(wrong)  # past our own checks: as a foreign program would send it
    for state in (late_hub.agents["left"], fresh(agent_id="new")):
        frozen = freeze(state)
        after, effects = agent.step(state, ModelArrived(START, payload))
        is_taken = which == "more of the agent than it sent" and not state.sent  # nothing of it is inside
        if not is_taken:
            assert sum(counts(effects).values()) == 1
            assert after is state
        assert freeze(state) == frozen
        check_harmless(state, payload, [20.0, 5.0])


@MODEST
@given(st.data())
def test_a_model_with_bytes_changed_or_cut_never_breaks_an_agent(late_hub: Hub, data: st.DataObject) -> None:
    payload = bytearray(late_hub.model)
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(payload)), st.integers(0, len(payload))))
    check_harmless(late_hub.agents["left"], bytes(payload[:cut]), [20.0, 5.0])
    check_harmless(fresh(agent_id="new"), bytes(payload[:cut]), [20.0, 5.0])
