"""The rounds: who took part, how many bytes it cost and how long it took."""

from __future__ import annotations

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
    if not data.table.empty:
        column = st.column_config
        st.dataframe(
            data.table,
            hide_index=True,
            key="rounds_table",
            column_config={
                labels.ROUND_CLOSED: column.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss"),
                labels.ROUND_SECONDS: column.NumberColumn(format="%.2f"),
            },
        )
        st.caption(labels.zone_note(zone))
