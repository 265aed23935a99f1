"""What an owner said, what it leaves open, and where another schema says something else."""

from __future__ import annotations

import msgspec
import pytest

from fleetgp.errors import ConfigError
from fleetgp.runtime.spec import parse_span
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wanted import Wanted, span, wanted

FLEET = Schema(
    channels=(Channel(name="a"), Channel(name="b", transform="log1p")),
    covariates=(Covariate(name="x", known_ahead=True),),
    interval_s=60.0,
    lags=3,
    phases=(86400.0,),
    inducing=12,
)
OWN = Wanted(
    channels=(Channel(name="b", transform="log1p", unit="ug", topic="t/b"), Channel(name="a", field="A")),
    covariates=(Covariate(name="x", known_ahead=True, topic="t/x"),),
)


def test_what_is_open_is_named() -> None:
    assert Wanted().open == ("channels", "interval", "lags", "phases", "inducing")
    assert wanted(FLEET).open == ()
    assert wanted(FLEET).schema() == FLEET
    part = msgspec.structs.replace(wanted(FLEET), lags=None, harmonics=None, kernel=None)
    assert part.open == ("lags",)
    with pytest.raises(ConfigError, match=r"stream\.lags: not given"):
        part.schema()
    with pytest.raises(ConfigError, match="channels: none is given"):
        Wanted(interval_s=1.0).schema()
    # no phases at all and no inducing inputs are words too
    assert Wanted(channels=FLEET.channels, interval_s=1.0, lags=1, phases=(), inducing=0).open == ()


def test_the_fleets_choice_is_taken_with_the_owners_topics_and_the_fleets_order() -> None:
    assert OWN.contradiction(FLEET) == ""
    taken = OWN.as_in(FLEET)
    assert taken.signature() == FLEET.signature()
    assert [(c.name, c.unit, c.topic, c.field) for c in taken.channels] == [("a", "", "", "A"), ("b", "ug", "t/b", "")]
    assert taken.covariates[0].topic == "t/x"


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"channels": OWN.channels[:1]}, "it has the channels a, b, the settings b"),
        ({"covariates": ()}, "it has the covariates x, the settings none"),
        ({"channels": (Channel(name="a"), Channel(name="b"))}, "it takes b as log1p, the settings as identity"),
        ({"covariates": (Covariate(name="x"),)}, "it takes x as identity, known ahead, the settings as identity"),
        ({"interval_s": 3600.0}, "it has interval 1min, the settings say 1h"),
        ({"lags": 2}, "it has lags 3, the settings say 2"),
        ({"phases": ()}, "it has phases 1d, the settings say none"),
        ({"harmonics": 2}, "it has harmonics 3, the settings say 2"),
        ({"inducing": 24}, "it has inducing 12, the settings say 24"),
        ({"kernel": "matern52"}, "it has kernel se, the settings say matern52"),
    ],
)
def test_a_contradiction_is_named_in_plain_words(own: dict[str, object], says: str) -> None:
    assert msgspec.structs.replace(OWN, **own).contradiction(FLEET) == says


def test_what_has_no_meaning_is_no_contradiction() -> None:
    plain = msgspec.structs.replace(FLEET, phases=(), inducing=0)
    assert msgspec.structs.replace(OWN, harmonics=7, kernel="matern32").contradiction(plain) == ""
    same = msgspec.structs.replace(OWN, interval_s=60.0, lags=3, phases=(86400.0,), inducing=12)
    assert same.contradiction(FLEET) == ""


@pytest.mark.parametrize("text", ["100ms", "500ms", "1s", "90s", "5min", "90min", "1h", "36h", "1d", "7d", "1.5s"])
def test_spans_are_written_as_settings_read_them(text: str) -> None:
    seconds = parse_span(text, "", "")
    assert parse_span(span(seconds), "", "") == seconds
