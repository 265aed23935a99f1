"""What a page shows while there is nothing to see: what is missing, and what to do."""

from __future__ import annotations

import streamlit as st

from dashboard import labels
from dashboard.view import View


def notice(view: View) -> None:
    """The reason in plain words, for a view with a problem or without any content."""
    if view.problem is None:
        st.subheader(labels.EMPTY_TITLE)
        st.info(labels.empty_text(view.location))
    elif view.problem.kind == "missing":
        st.subheader(labels.MISSING_TITLE)
        st.info(labels.missing_text(view.location))
    else:
        st.subheader(labels.UNREADABLE_TITLE)
        st.warning(labels.unreadable_text(view.location, view.problem.detail))
