"""The fleet page: one row an agent, headline numbers above, newest anomalies below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import labels
from dashboard.palette import Palette
from dashboard.queries import Headline

ROW_PX, MOST_PX = 35, 600


@dataclass(frozen=True)
class FleetPage:
    """agents, events: as ``queries`` names their columns. rows: frames behind the quality figures. footer: programs, store."""

    headline: Headline
    agents: pd.DataFrame
    events: pd.DataFrame
    rows: int
    footer: str


def fleet(page: FleetPage, colours: Palette, on_open: Callable[[str], None], *, table_key: str) -> None:
    """Draw the page; on_open: called with the agent whose row was clicked. table_key: new where none is to be selected."""
    _headline(page.headline)
    if page.agents.empty:
        st.info(labels.NO_AGENTS)
        return
    _agents(page, colours, on_open, table_key)
    st.caption(labels.quality_note(page.rows))
    st.markdown(f"##### {labels.LATEST_EVENTS}")
    if page.events.empty:
        st.caption(labels.NO_FLEET_EVENTS)
    else:
        st.dataframe(page.events, hide_index=True, column_config=event_columns(), key="fleet_events")
    st.caption(page.footer)


def _headline(facts: Headline) -> None:
    alive, messages, alarms, last_round = st.columns(4)
    with alive:
        _fact(
            labels.AGENTS_ALIVE, labels.of(facts.alive, facts.agents), labels.silent_note(facts.silent, facts.offline)
        )
    with messages:
        _fact(labels.MESSAGES, labels.count(facts.messages), labels.topics_note(facts.topics), labels.MESSAGES_HELP)
    with alarms:
        _fact(
            labels.ALARMS_OPEN,
            labels.count(facts.alarms_open),
            labels.alarms_note(facts.alarms_day),
            labels.ALARMS_OPEN_HELP,
        )
    with last_round:
        number = "–" if facts.last_round is None else labels.count(facts.last_round)
        note = labels.round_note(facts.round_answered, facts.round_expected, facts.round_age_s)
        _fact(labels.LAST_ROUND, number, note, labels.LAST_ROUND_HELP)


def _fact(label: str, value: str, note: str, help: str | None = None) -> None:
    st.metric(label, value, note, help=help, border=True, delta_color="off", delta_arrow="off")


def _agents(page: FleetPage, colours: Palette, on_open: Callable[[str], None], key: str) -> None:
    frame = page.agents
    chosen = st.dataframe(
        frame.style.map(lambda word: _presence_style(word, colours), subset=[labels.PRESENCE]).map(
            lambda alarms: f"color: {colours.anomaly}; font-weight: 600" if alarms else "", subset=[labels.ALARMS]
        ),
        hide_index=True,
        height=min(ROW_PX * (len(frame) + 1) + 2, MOST_PX),
        column_config=_agent_columns(),
        on_select="rerun",
        selection_mode="single-row",
        key=key,
    )
    if chosen.selection.rows:
        on_open(frame[labels.AGENT].iloc[chosen.selection.rows[0]])


def _presence_style(word: str, colours: Palette) -> str:
    if word == labels.DOTS["alive"]:
        return f"color: {colours.expected}"
    return f"color: {colours.anomaly}" if word == labels.DOTS["silent"] else f"color: {colours.quiet}"


def _agent_columns() -> dict[str, Any]:
    column, about = st.column_config, labels.FLEET_HELP
    return {
        labels.AGENT: column.TextColumn(width="small", pinned=True),
        labels.PRESENCE: column.TextColumn(help=about[labels.PRESENCE], width="small"),
        labels.LAST_FRAME: column.TextColumn(help=about[labels.LAST_FRAME], width="small"),
        labels.FRAMES: column.NumberColumn(help=about[labels.FRAMES], format="localized", width="small"),
        labels.SAVED: column.NumberColumn(help=about[labels.SAVED], format="%.0f %%", width="small"),
        labels.COVERAGE: column.NumberColumn(help=about[labels.COVERAGE], format="%.0f %%", width="small"),
        labels.ALARMS: column.NumberColumn(help=about[labels.ALARMS], width="small"),
        labels.ALARMS_DAY: column.NumberColumn(help=about[labels.ALARMS_DAY], width="small"),
        labels.LEARNING: column.TextColumn(help=about[labels.LEARNING], width="small"),
        labels.ODDNESS: column.LineChartColumn(help=about[labels.ODDNESS], y_min=0, y_max=labels.ODDNESS_TOP),
    }


def event_columns() -> dict[str, Any]:
    """How columns of an events table look, on this page and on the device page."""
    column = st.column_config
    return {
        labels.AGENT: column.TextColumn(width="small"),
        labels.EVENT_START: column.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", width="medium"),
        labels.EVENT_STATE: column.TextColumn(width="small"),
        labels.EVENT_DURATION: column.TextColumn(width="small"),
        labels.EVENT_PEAK: column.NumberColumn(format="%.1f", width="small", help=labels.SCORE_NOTE),
        labels.EVENT_BLAME: column.TextColumn(width="large"),
    }
