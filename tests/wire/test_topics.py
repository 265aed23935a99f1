"""Topics are built and read in one place, and docs/wire.md tells the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetgp.wire import document, messages, topics
from fleetgp.wire.topics import Address

IDS = st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z")


@given(IDS, IDS)
def test_what_is_built_is_read_back(fleet: str, name: str) -> None:
    for kind in topics.AGENT_KINDS:
        assert topics.parse(topics.agent(fleet, name, kind)) == Address(fleet, "agents", name, kind)
    for kind in topics.SERVICE_KINDS:
        assert topics.parse(topics.service(fleet, name, kind)) == Address(fleet, "services", name, kind)
    for kind in topics.FLEET_KINDS:
        assert topics.parse(topics.fleet_wide(fleet, kind)) == Address(fleet, "fleet", "", kind)


def test_topics_as_other_programs_know_them() -> None:
    """Literal, so that a change of a released topic shows."""
    assert topics.agent("home", "pump-1", "summary") == "fleetgp/home/agents/pump-1/summary"
    assert topics.service("home", "coordinator", "status") == "fleetgp/home/services/coordinator/status"
    assert topics.fleet_wide("home", "model") == "fleetgp/home/fleet/model"
    assert topics.all_agents("home", "events") == "fleetgp/home/agents/+/events"
    assert topics.all_services("home") == ("fleetgp/home/services/+/status", "fleetgp/home/services/+/health")


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "/",
        "sensors/pump-1",
        "fleetgp",
        "fleetgp/home",
        "other/home/agents/a/status",
        "fleetgp/home/agents/a/no-such-kind",
        "fleetgp/home/agents/a/status/more",
        "fleetgp/home/agents//status",
        "fleetgp//agents/a/status",
        "fleetgp/home/agents/a b/status",
        "fleetgp/home/agents/a.b/status",
        "fleetgp/home/agents/+/status",
        "fleetgp/home/agents/ä/status",
        "fleetgp/home/agents/a\n/status",
        "fleetgp/home/agents/" + "a" * 65 + "/status",
        "fleetgp/home/services/bridge/summary",
        "fleetgp/home/fleet/status",
        "fleetgp/home/commands/#",
        "/fleetgp/home/agents/a/status",
    ],
)
def test_topics_that_are_not_ours(topic: str) -> None:
    assert topics.parse(topic) is None


def test_kinds_that_do_not_exist_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="no agent topic"):
        topics.agent("home", "a", "model")
    with pytest.raises(ValueError, match="no service topic"):
        topics.service("home", "bridge", "summary")
    with pytest.raises(ValueError, match="no fleet topic"):
        topics.fleet_wide("home", "status")


def test_every_kind_of_topic_carries_one_struct_and_is_documented() -> None:
    kinds = {*topics.AGENT_KINDS, *topics.SERVICE_KINDS, *topics.FLEET_KINDS}
    assert kinds == set(messages.BY_KIND)
    assert set(messages.BY_KIND.values()) == set(messages.ALL)
    documented = {
        (address.area, address.kind)
        for route in document.ROUTES
        if (address := topics.parse(route.topic.replace("<", "").replace(">", "")))
    }
    assert documented == {
        *(("agents", kind) for kind in topics.AGENT_KINDS),
        *(("services", kind) for kind in topics.SERVICE_KINDS),
        *(("fleet", kind) for kind in topics.FLEET_KINDS),
    }
    assert len(document.ROUTES) == len(documented)


def test_the_page_on_the_wire_is_in_step_with_the_code() -> None:
    """Mend it with: python -m fleetgp.wire.document > docs/wire.md."""
    page = Path(__file__).parents[2] / "docs" / "wire.md"
    assert page.read_text(encoding="utf-8") == document.markdown()


def test_the_page_tells_what_docstrings_say() -> None:
    told = document.meanings(messages.ChannelPrediction)
    assert told["low"] == told["high"] == "the 90 % interval"
    assert told["observed"] == "null where nothing came"
    assert "factor" not in document.meanings(messages.Included)  # "by what ageing factor: ..." is prose


def test_a_field_without_a_meaning_stops_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    class Riddle(messages.Message, frozen=True, kw_only=True, tag="riddle"):
        """Says nothing of its field."""

        enigma: int = 0

    assert msgspec.structs.fields(Riddle)[-1].name == "enigma"
    monkeypatch.setattr(document, "ALL", (*messages.ALL, Riddle))
    with pytest.raises(ValueError, match=r"Riddle\.enigma"):
        document.markdown()
