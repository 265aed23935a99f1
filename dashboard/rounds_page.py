"""The rounds: who took part, how many bytes it cost and how long it took."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard import charts, labels
from dashboard.palette import Palette
from dashboard.queries import RoundsData


def rounds(data: RoundsData, zone: str, colours: Palette) -> None:
    """Draw the page."""
    st.markdown(labels.ROUND_SENTENCE)
    if data.strip.empty and data.closing.empty:
        st.info(labels.NO_ROUNDS)
    if not data.strip.empty:
        st.markdown(f"**{labels.STRIP_TITLE}**", help=labels.STRIP_HELP)
        st.altair_chart(charts.taking_part(data.strip, colours), key="strip")
    if not data.closing.empty:
        bytes_place, seconds_place = st.columns(2, gap="medium")
        with bytes_place:
            st.markdown(f"**{labels.BYTES_TITLE}**")
            st.altair_chart(charts.costs(data.costs, colours), key="costs")
        with seconds_place:
            st.markdown(f"**{labels.SECONDS_TITLE}**")
            st.altair_chart(charts.closing(data.closing, colours), key="closing")
    if not data.strip.empty or not data.closing.empty:
        _changes(data.changes)
    if not data.table.empty:
        st.markdown(f"**{labels.ROUNDS_TITLE}**")
        st.dataframe(data.table, hide_index=True, key="rounds_table", column_config=_columns())
        st.caption(labels.zone_note(zone))


def _changes(changes: pd.DataFrame) -> None:
    st.markdown(f"**{labels.CHANGES_TITLE}**", help=labels.CHANGES_HELP)
    if changes.empty:
        st.caption(labels.NO_CHANGES)
    else:
        st.dataframe(changes, hide_index=True, key="changes_table", column_config=_columns())


def _columns() -> dict[str, object]:
    column = st.column_config
    return {
        labels.ROUND_SECONDS: column.NumberColumn(format="%.2f"),
        labels.CHANGE_WHAT: column.TextColumn(width="large"),
        labels.CHANGE_GAIN: column.TextColumn(help=labels.CHANGES_HELP),
    }
