"""One device: its readings against what the agent expected, how odd each frame was, and its anomalies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from dashboard import charts, labels
from dashboard.device_queries import ChannelData, DeviceData
from dashboard.fleet_page import event_columns
from dashboard.palette import Palette

COLUMNS = 2
FEW = 8  # channels


@dataclass(frozen=True)
class DevicePage:
    """summary: presence and quality in one sentence. data: None where the agent has no frames yet."""

    agent: str
    summary: str
    data: DeviceData | None
    events: pd.DataFrame
    zone: str
    with_layers: bool = False


@dataclass(frozen=True)
class Choice:
    """What the viewer wants to see."""

    agent: str
    range_name: str
    is_live: bool
    with_layers: bool


def choose(agents: Sequence[str], default_range: str, channels: Mapping[str, int]) -> Choice:
    """The page's controls. They stay outside the live part, so that a tick never takes a click away.

    channels: how many each agent has; where they are many, layers are shown on demand.
    """
    picker, ranges, split, live = st.columns([6, 11, 3, 2], vertical_alignment="bottom")
    agent = picker.selectbox(labels.AGENT, agents, key="agent_picker", on_change=_name_in_address)
    if "range_picker" not in st.session_state:  # a page's widgets forget when another page is shown
        st.session_state["range_picker"] = st.session_state.get("range", default_range)
    range_name = ranges.segmented_control(labels.RANGE, list(labels.RANGES_MS), key="range_picker", required=True)
    st.session_state["range"] = range_name
    is_few = channels.get(agent, 0) <= FEW
    with_layers = split.toggle(labels.LAYERS, value=is_few, key=f"layers_{is_few}", help=labels.LAYERS_HELP)
    is_live = live.toggle(labels.LIVE, value=True, key="live_toggle", help=labels.LIVE_HELP)
    return Choice(agent, range_name or default_range, is_live, with_layers)


def _name_in_address() -> None:
    """Put the chosen agent into the address. Only then: each change is a step of the browser's Back."""
    st.query_params["agent"] = st.session_state["agent_picker"]


def no_agents() -> None:
    """What the page shows while there is no agent to choose."""
    st.info(labels.NO_AGENTS)


def device(page: DevicePage, colours: Palette) -> None:
    """Draw the live part of the page."""
    st.markdown(page.summary)
    if page.data is None:
        st.info(labels.no_frames(page.agent))
        return
    st.markdown(f"**{labels.SCORE_TITLE}**", help=labels.SCORE_NOTE)
    st.altair_chart(charts.score(page.data.score, page.data.spans, colours), key="score")
    st.altair_chart(charts.legend(colours, with_layers=page.with_layers), width="content", key="legend")
    for first in range(0, len(page.data.channels), COLUMNS):
        row = page.data.channels[first : first + COLUMNS]
        for place, channel in zip(st.columns(COLUMNS, gap="medium"), row, strict=False):
            with place:
                _channel(channel, page.data, colours)
    st.caption(labels.channels_note(page.data.step_ms, page.zone))
    if page.with_layers:
        st.caption(_layers_note(page.data))
    st.markdown(f"##### {labels.EVENTS_TITLE}")
    if page.events.empty:
        st.caption(labels.NO_EVENTS)
    else:
        st.dataframe(page.events, hide_index=True, column_config=event_columns(), key="device_events")
        st.caption(labels.SCORE_NOTE)


def _channel(channel: ChannelData, data: DeviceData, colours: Palette) -> None:
    st.markdown(f"**{labels.channel_title(channel.name, channel.unit)}**")
    st.altair_chart(charts.channel(channel, data.spans, colours), key=f"channel_{channel.name}")
    if channel.readings == 0:
        st.caption(labels.NO_CHANNEL_DATA)
        return
    st.altair_chart(charts.residuals(channel, data.spans, colours), key=f"residuals_{channel.name}")
    if channel.layers is not None:
        st.altair_chart(charts.layers(channel.layers, data.spans, colours), key=f"layers_{channel.name}")
        st.caption(channel.layers.sentence)


def _layers_note(data: DeviceData) -> str:
    if all(channel.layers is None for channel in data.channels):
        return labels.NO_LAYERS
    return labels.LEVELS_NOTE if data.is_level else labels.LAYERS_NOTE
