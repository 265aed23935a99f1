"""What an owner may say of mixed channels, and what is refused by name."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
import pytest

from fleetgp.errors import ConfigError
from fleetgp.recording import spec
from fleetgp.runtime.settings import load
from fleetgp.runtime.spec import read_wanted
from fleetgp.schema import Schema
from fleetgp.wanted import wanted
from simulator import presses

EXAMPLES = Path(__file__).parents[2] / "examples"

CHANNELS = "[channels]\na = {}\nb = {}\nc = {}\n"
AT = CHANNELS + "[covariates]\nat = { known_ahead = true }\n"


def schema(stream: str, rest: str = CHANNELS) -> Schema:
    return read_wanted(
        tomllib.loads(f'[stream]\ninterval = "1s"\nmixing = "ilmm"\n{stream}\n{rest}'), "x.toml"
    ).schema()


def test_a_cycle_leaves_nothing_open_and_is_a_schema_of_its_own() -> None:
    made = schema('cycle = "60s"')
    assert (made.cycle_s, made.lags, made.inducing, made.ranks) == (60.0, 1, 20, (2, 2, 2))
    assert wanted(made).schema() == made
    assert "ilmm 2/2/2" in made.signature()
    assert wanted(made).contradiction(schema('cycle = "30s"'))
    assert wanted(made).contradiction(schema('cycle = "60s"\nranks = [1, 1, 1]'))


def test_ranks_are_no_more_than_the_channels_there_are() -> None:
    assert schema('cycle = "60s"', "[channels]\na = {}\n").ranks == (1, 1, 1)


def test_a_position_is_a_covariate_that_is_known_ahead() -> None:
    made = schema('position = "at"', AT)
    assert (made.position, made.cycle_s, made.phases) == ("at", None, ())
    round_ = schema('position = "at"\nposition_period = 360', AT)
    assert round_.position_period == 360.0
    assert round_.signature() != made.signature()
    assert wanted(round_).schema() == round_
    assert wanted(made).contradiction(round_) == "it has position_period 360.0, the settings say 0.0"


@pytest.mark.parametrize(
    ("stream", "rest", "key"),
    [
        ("", CHANNELS, "stream.cycle"),
        ('cycle = "60s"\nranks = [4, 2, 2]', CHANNELS, "stream.ranks"),
        ('cycle = "60s"\nranks = [2, 2]', CHANNELS, "stream.ranks"),
        ('cycle = "60s"\nranks = [0, 0, 0]', CHANNELS, "stream.ranks"),
        ('cycle = "60s"\nlags = 3', CHANNELS, "stream.lags"),
        ('cycle = "60s"\nphases = ["1d"]', CHANNELS, "stream.phases"),
        ('cycle = "60s"\ninducing = 2', CHANNELS, "stream.inducing"),
        ('cycle = "60s"\ninducing = 200\nranks = [3, 3, 3]', CHANNELS, "stream.ranks"),
        ('cycle = "1s"', CHANNELS, "stream.cycle"),
        ('cycle = "60s"\nposition_period = 360', CHANNELS, "stream.position_period"),
        ('position = "at"\nposition_period = 0', AT, "stream.position_period"),
        ('position = "at"\nposition_period = "360"', AT, "stream.position_period"),
        (
            'position = "at"\nposition_period = 9',
            AT.replace("true", 'true, transform = "log1p"'),
            "stream.position_period",
        ),
        ('position = "at"', CHANNELS, "stream.position"),
        ('position = "at"', CHANNELS + "[covariates]\nat = {}\n", "covariates.at"),
        ('cycle = "60s"', CHANNELS + "[covariates]\nat = {}\n", "covariates.at"),
        ('cycle = "60s"\nposition = "at"', CHANNELS, "stream.position"),
    ],
)
def test_what_is_of_no_use_together_is_refused_by_name(stream: str, rest: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        schema(stream, rest)
    assert caught.value.key == key


@pytest.mark.parametrize("stream", ['cycle = "60s"', 'mixing = "lmc"', "ranks = [1, 1, 1]"])
def test_keys_of_mixing_stand_with_it_only(stream: str) -> None:
    with pytest.raises(ConfigError, match="ilmm"):
        read_wanted(tomllib.loads(f"[stream]\n{stream}\n{CHANNELS}"), "x.toml")


def test_the_examples_are_whole() -> None:
    made = spec.load(EXAMPLES / "cycle.toml").schema
    assert made.is_mixed
    assert made.channel_names == ("force", "stroke", "oil_pressure", "current")
    live = load(EXAMPLES / "press.toml", {}, {}).wanted().schema()
    assert live.signature() == msgspec.structs.replace(presses.schema(), ranks=live.ranks).signature()
