"""The Streamlit script: finds the source, offers the pages, and keeps the shown one alive.

Run by ``fleetgp dashboard``. A test puts its own ``Source`` into ``st.session_state["source"]``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from dashboard import device_queries, labels, queries, source
from dashboard.device_page import DevicePage, choose, device, no_agents
from dashboard.fleet_page import FleetPage, fleet
from dashboard.notice_page import notice
from dashboard.palette import Palette, palette
from dashboard.rounds_page import rounds
from dashboard.source import Source
from dashboard.view import View

LATEST_EVENTS = 8
LESS_AIR = "<style>[data-testid='stMainBlockContainer'] {padding-top: 4.5rem; padding-bottom: 2rem}</style>"


def main() -> None:
    """One run of the script."""
    st.set_page_config(page_title=labels.TITLE, layout="wide")
    st.html(LESS_AIR)  # Streamlit has no setting for the room it leaves above a page
    device_page = st.Page(show_device, title=labels.DEVICE_PAGE, url_path="device")
    st.navigation(
        [
            st.Page(lambda: show_fleet(device_page), title=labels.FLEET_PAGE, url_path="fleet", default=True),
            device_page,
            st.Page(show_rounds, title=labels.ROUNDS_PAGE, url_path="rounds"),
        ],
        position="top",
    ).run()


def find_source() -> Source:
    """The source of this session: the one a test put there, else the one on the file named on the command line."""
    if "source" in st.session_state:
        found: Source = st.session_state["source"]
        return found
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--refresh-s", type=float, default=2.0)
    given = parser.parse_args(sys.argv[1:])
    return source.shared(given.store, given.refresh_s)


def live(draw: Callable[[View], None], *, is_live: bool = True) -> None:
    """Draw a view, again at every refresh; a change of what the page as a whole rests on runs the script anew."""
    door = find_source()
    first = _footing(door.look())

    def tick() -> None:
        view = door.look()
        if _footing(view) != first:
            st.rerun()
        if view.problem is not None or view.is_empty:
            notice(view)
        else:
            draw(view)

    st.fragment(tick, run_every=door.refresh_s if is_live else None)()


def _footing(view: View) -> tuple[object, ...]:
    return view.problem, view.is_empty, view.agents


def zone() -> str:
    """The viewer's time zone; UTC where the browser names none, or one that this machine does not know."""
    name = st.context.timezone or "UTC"
    try:
        return ZoneInfo(name).key
    except (ZoneInfoNotFoundError, ValueError):
        return "UTC"


def colours() -> Palette:
    return palette(st.context.theme.type)


def show_fleet(device_page: st.Page) -> None:
    def open_device(agent: str) -> None:
        st.session_state["agent"] = st.session_state["agent_picker"] = agent
        st.session_state["opened"] = st.session_state.get("opened", 0) + 1
        st.switch_page(device_page, query_params={"agent": agent})

    def draw(view: View) -> None:
        quality = source.quality(find_source().key, view.version, view)
        page = FleetPage(
            headline=queries.headline(view),
            agents=queries.fleet_frame(view, quality),
            events=device_queries.events_frame(view, None, zone()).head(LATEST_EVENTS),
            rows=queries.most_rows(quality),
            footer=queries.footer(view, zone()),
        )
        # Every opening gets a new table, or the row would still be selected on the way back and open again.
        fleet(page, colours(), open_device, table_key=f"fleet_agents_{st.session_state.get('opened', 0)}")

    live(draw)


def show_device() -> None:
    door = find_source()
    view = door.look()
    if not view.agents:
        live(lambda _: no_agents())
        return
    _settle_agent(view)
    channels = {agent: device_queries.count_channels(view, agent) for agent in view.agents}
    choice = choose(view.agents, device_queries.default_range(view, st.session_state["agent_picker"]), channels)
    st.session_state["agent"] = choice.agent
    look = device_queries.Look(choice.agent, labels.RANGES_MS[choice.range_name], zone(), choice.with_layers)

    def draw(now: View) -> None:
        quality = source.quality(door.key, now.version, now)
        page = DevicePage(
            agent=choice.agent,
            summary=queries.agent_summary(now, choice.agent, quality),
            data=source.device(door.key, now.version, look, door, now),
            events=device_queries.events_frame(now, choice.agent, zone()),
            zone=zone(),
            with_layers=choice.with_layers,
        )
        device(page, colours())

    live(draw, is_live=choice.is_live)


def _settle_agent(view: View) -> None:
    """Before the picker is drawn: the agent it showed last, else the one in the address, else the first."""
    wishes = [st.session_state.get("agent_picker"), st.session_state.get("agent"), st.query_params.get("agent")]
    st.session_state["agent_picker"] = next((wish for wish in wishes if wish in view.agents), view.agents[0])


def show_rounds() -> None:
    def draw(view: View) -> None:
        rounds(queries.rounds_data(view.rounds, zone(), changes=view.changes), zone(), colours())

    live(draw)


if __name__ == "__main__":
    main()
