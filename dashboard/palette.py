"""Colours with one meaning on every page; told apart by people who see no red or no green (after Okabe and Ito)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """observed: what the sensor said. expected: what the agent predicted, line and band. anomaly: shading and marks."""

    observed: str
    expected: str
    band_opacity: float
    anomaly: str
    shade_opacity: float
    quiet: str  # rules, stripes, absent
    kept: str  # an earlier summary was used
    deviation: str  # what this device does otherwise; what the fleet expects is as expected
    local: str  # a pattern of its own


LIGHT = Palette("#1f2933", "#0072b2", 0.20, "#d55e00", 0.14, "#9aa5b1", "#9ccbe6", "#b5487e", "#009e73")
DARK = Palette("#eef2f6", "#56b4e9", 0.25, "#f28e3c", 0.20, "#7b8794", "#2f6690", "#e08ab5", "#3fc79d")


def palette(theme: str | None) -> Palette:
    """Colours for Streamlit's "dark" or "light" theme."""
    return DARK if theme == "dark" else LIGHT
