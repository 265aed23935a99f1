"""What a schema may be, whether two agents may share knowledge, and names that are safe everywhere."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetgp import features
from fleetgp.errors import ConfigError
from fleetgp.schema import MAX_PRECISION, Channel, Covariate, Schema, check, check_id
from fleetgp.wire.codec import MAX_BYTES
from fleetgp.wire.convert import MAX_ELEMENTS

MODEST = settings(max_examples=60, deadline=None, derandomize=True)


def schema(channels: int = 2, covariates: int = 1, lags: int = 2, interval_s: float = 1.0) -> Schema:
    return Schema(
        channels=tuple(Channel(name=f"c{i}") for i in range(channels)),
        covariates=tuple(Covariate(name=f"x{i}") for i in range(covariates)),
        lags=lags,
        interval_s=interval_s,
    )


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        (schema(channels=0), "channels"),
        (schema(channels=65, lags=1), "channels"),
        (schema(covariates=65), "covariates"),
        (schema(lags=0), "stream.lags"),
        (schema(lags=25), "stream.lags"),
        (schema(interval_s=0.0), "stream.interval"),
        (schema(interval_s=-1.0), "stream.interval"),
        (schema(interval_s=float("nan")), "stream.interval"),
        (schema(interval_s=float("inf")), "stream.interval"),
        (schema(channels=64, lags=24, covariates=64), "channels"),
        (Schema(channels=(Channel(name=""),)), "channels"),
        (Schema(channels=(Channel(name="n" * 129),)), "channels"),
        (Schema(channels=(Channel(name="a"), Channel(name="a"))), "channels"),
        (Schema(channels=(Channel(name="a"),), covariates=(Covariate(name="a"),)), "channels"),
    ],
)
def test_a_schema_that_cannot_be_watched_is_refused_by_its_key(wrong: Schema, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(wrong)
    assert caught.value.key == key


@pytest.mark.parametrize(
    "right", [schema(), schema(channels=64, covariates=0, lags=1), schema(1, 64, 24), schema(interval_s=0.001)]
)
def test_large_and_small_schemas_that_can_be_watched_pass(right: Schema) -> None:
    assert check(right) is right


@MODEST
@given(st.integers(1, 64), st.integers(0, 64), st.integers(1, 24))
def test_what_passes_fits_on_the_wire(channels: int, covariates: int, lags: int) -> None:
    """Whatever passes the check can be summarised: no agent may start that fails at its first round.

    A summary is the triangles [Q, F(F+1)/2] and a few arrays [Q, F] of doubles; a tenth is left for all the rest.
    """
    size = features.Shape(channels, lags, covariates).linear
    numbers = channels * size * (size + 1) // 2
    try:
        check(schema(channels, covariates, lags))
    except ConfigError:
        assert numbers > MAX_PRECISION  # and only what is too large is refused
    else:
        assert numbers <= MAX_ELEMENTS
        assert 8 * (numbers + 3 * channels * size) <= 0.9 * MAX_BYTES


SIGNIFICANT = [
    schema(),
    schema(channels=3),
    schema(covariates=2),
    schema(lags=3),
    schema(interval_s=60.0),
    Schema(channels=(Channel(name="c0"), Channel(name="x0")), covariates=(Covariate(name="c1"),)),
    Schema(channels=(Channel(name="c1"), Channel(name="c0")), covariates=(Covariate(name="x0"),)),
    Schema(channels=(Channel(name="c0", transform="log1p"), Channel(name="c1")), covariates=(Covariate(name="x0"),)),
    Schema(channels=(Channel(name="c0"), Channel(name="c1")), covariates=(Covariate(name="x0", known_ahead=True),)),
]


def test_agents_that_differ_in_what_is_learnt_do_not_share() -> None:
    assert len({item.signature() for item in SIGNIFICANT}) == len(SIGNIFICANT)


def test_agents_that_differ_in_topics_fields_and_units_share() -> None:
    other = msgspec.structs.replace(
        schema(),
        channels=tuple(Channel(name=f"c{i}", unit="K", topic=f"t/{i}", field="value") for i in range(2)),
        covariates=(Covariate(name="x0", unit="m", topic="t", field="f"),),
    )
    assert other.signature() == schema().signature()


@pytest.mark.parametrize("name", ["a", "pump-1", "PRSA_Data", "0", "x" * 64])
def test_usable_names(name: str) -> None:
    assert check_id(name, "agent.id") == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "a.b", "a#", "+", "Büro", "pump\n", "٣", "a\x00"])
def test_names_that_are_not_safe_in_a_topic_are_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_id(name, "agent.id")
    assert caught.value.key == "agent.id"
