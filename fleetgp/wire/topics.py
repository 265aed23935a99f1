"""Every topic FleetGP uses, built and read in this one place.

All topics start with ``fleetgp/<fleet>/``. Ids are ``[A-Za-z0-9_-]+``, so no topic ever needs escaping.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetgp.schema import ID_PATTERN

ROOT = "fleetgp"

AGENT_KINDS = ("status", "predictions", "events", "bootstrap", "summary", "gradient", "health")
FLEET_KINDS = ("model", "round", "tuning")
SERVICE_KINDS = ("status", "health")


@dataclass(frozen=True)
class Address:
    """A topic taken apart. area: agents, services or fleet; id: whose ("" for the fleet); kind: what."""

    fleet: str
    area: str
    id: str
    kind: str


def agent(fleet: str, agent_id: str, kind: str) -> str:
    """Topic on which one agent speaks; kind is one of AGENT_KINDS."""
    if kind not in AGENT_KINDS:
        raise ValueError(f"no agent topic {kind!r}")
    return f"{ROOT}/{fleet}/agents/{agent_id}/{kind}"


def service(fleet: str, name: str, kind: str) -> str:
    """Topic on which the coordinator or the bridge speaks of itself; kind is one of SERVICE_KINDS."""
    if kind not in SERVICE_KINDS:
        raise ValueError(f"no service topic {kind!r}")
    return f"{ROOT}/{fleet}/services/{name}/{kind}"


def fleet_wide(fleet: str, kind: str) -> str:
    """Topic on which the coordinator speaks to all; kind is one of FLEET_KINDS."""
    if kind not in FLEET_KINDS:
        raise ValueError(f"no fleet topic {kind!r}")
    return f"{ROOT}/{fleet}/fleet/{kind}"


def all_agents(fleet: str, kind: str) -> str:
    """Subscription filter: one kind from every agent."""
    return agent(fleet, "+", kind)


def all_services(fleet: str) -> tuple[str, ...]:
    """Subscription filters: status and health of the coordinator and the bridge."""
    return tuple(service(fleet, "+", kind) for kind in SERVICE_KINDS)


def parse(topic: str) -> Address | None:
    """Take a topic apart; None when it is not one of ours."""
    match topic.split("/"):
        case [root, fleet, "agents", agent_id, kind] if root == ROOT and kind in AGENT_KINDS:
            address = Address(fleet, "agents", agent_id, kind)
        case [root, fleet, "services", name, kind] if root == ROOT and kind in SERVICE_KINDS:
            address = Address(fleet, "services", name, kind)
        case [root, fleet, "fleet", kind] if root == ROOT and kind in FLEET_KINDS:
            address = Address(fleet, "fleet", "", kind)
        case _:
            return None
    names = [address.fleet] if address.area == "fleet" else [address.fleet, address.id]
    return address if all(ID_PATTERN.fullmatch(name) for name in names) else None
