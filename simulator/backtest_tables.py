"""The figures of a backtest as tables that people read, at most a hundred columns wide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAME = 24
WORSE = 0.005  # of persistence's error: less is no difference
NAMED = 8
SHARES = (50, 80, 90, 95)
WIDTH = NAME + 7 + 9 + 13 + 9 + 9 + 7 * len(SHARES)

HOW_TO_READ = (
    "RMSE           typical error in standard deviations of each channel, transformed: lower is better",
    "persistence    the same error of saying 'as it was': what a prediction has to beat",
    "NLL            how surprised a forecast was by what came, bold mistakes cost most: lower is better",
    "CRPS           distance of the whole forecast, spread included, from what came: lower is better",
    "readings in    how many of 100 readings lay in the band made for so many: nearest to its heading is",
    "the band of    best, fewer = bands too narrow, more = too wide; 90 % is the band that agents publish",
    "average error  how far off on average, up or down alike: lower is better",
)
NO_CRPS = "CRPS '-': a channel in logarithms has none in its own unit (it is infinite there for any such law)"
LOG_RMSE = "and is predicted by its median there, which makes the average error small, not the RMSE"
GLITCHES = "               (a few large jumps of the readings rule an RMSE; they rule the average error less)"


def tables(report: Mapping[str, Any]) -> list[str]:
    """Lines: agents, channels and all; channels in their own unit; first days of those that joined; how to read them."""
    lines = [f"{'readings in the band of':>{WIDTH}}", _head("agent or channel")]
    for table in ("agents", "channels"):
        lines += [_line(name, found) for name, found in report[table].items()]
        lines.append("-" * WIDTH)
    lines += [_line("overall", report["overall"]), "", *_in_own_units(report["channels"]), ""]
    if report["joiners"]:
        lines += [_head("joined: its first"), *_first_days(report["joiners"]), ""]
    return [*lines, *HOW_TO_READ, "", *verdict(report)]


def _first_days(joiners: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, stretches in joiners.items():
        counted = -1
        for stretch, found in stretches.items():
            if found["n"] != counted:  # the same where the recording has ended before
                lines.append(_line(f"{_short(name, NAME - 9)} {stretch.split('_')[1]} days", found))
            counted = found["n"]
    return lines


def verdict(report: Mapping[str, Any]) -> list[str]:
    """What the figures say, in plain words; nothing where nothing was predicted."""
    overall = report["overall"]
    gain = _gain(overall)
    if gain is None or overall["coverage90"] is None:
        return []
    lines = [
        f"on the whole   {_words(gain)} than saying 'as it was'; {100 * overall['coverage90']:.1f} % of readings in their 90 % band"
    ]
    worse = [
        f"{name} {-100 * gain:.0f} %"
        for table in ("agents", "channels")
        for name, found in report[table].items()
        if (gain := _gain(found)) is not None and gain <= -WORSE
    ]
    if worse:
        more = f" and {len(worse) - NAMED} more" if len(worse) > NAMED else ""
        lines.append(f"worse for      {', '.join(worse[:NAMED])}{more}")
        lines.append(GLITCHES)
    return lines


def _gain(found: Mapping[str, Any]) -> float | None:
    """How much smaller the error is than persistence's, a share of it; None where there is none."""
    rmse, persistence = found["rmse"], found["rmse_persistence"]
    return 1 - rmse / persistence if rmse is not None and persistence else None


def _words(gain: float) -> str:
    share = f"{abs(100 * gain):.1f} %"
    return f"error {share} smaller" if gain >= 0 else f"error {share} LARGER"


def _in_own_units(channels: Mapping[str, Any]) -> list[str]:
    lines = [f"{'in its own unit':<{NAME}}{'unit':<12}{'RMSE':>11}{'persistence':>14}{'average error':>14}{'CRPS':>12}"]
    for name, found in channels.items():
        own = found["original"]
        cells = [_text(own[key], ".4g") for key in ("rmse", "rmse_persistence", "mae", "crps")]
        unit = _short(own["unit"] or "-", 12)
        lines.append(f"{_short(name, NAME)}{unit}{cells[0]:>11}{cells[1]:>14}{cells[2]:>14}{cells[3]:>12}")
    if any("crps_left_out" in found["original"] for found in channels.values()):
        lines += [NO_CRPS, LOG_RMSE]
    return lines


def _head(first: str) -> str:
    shares = "".join(f"{f'{share} %':>7}" for share in SHARES)
    return f"{first:<{NAME}}{'n':>7}{'RMSE':>9}{'persistence':>13}{'NLL':>9}{'CRPS':>9}{shares}"


def _line(name: str, found: Mapping[str, Any]) -> str:
    rmse, persistence, nll, crps = (_text(found[key], ".4f") for key in ("rmse", "rmse_persistence", "nll", "crps"))
    shares = "".join(f"{_text(found[f'coverage{share}'], '.1%').removesuffix('%'):>7}" for share in SHARES)
    return f"{_short(name, NAME)}{found['n']:>7}{rmse:>9}{persistence:>13}{nll:>9}{crps:>9}{shares}"


def _text(value: float | None, form: str) -> str:
    """The number in its form; in few digits where it is too large for its column, '-' where there is none."""
    if value is None:
        return "-"
    return format(value, form if abs(value) < 1000 or form.endswith("g") else ".3g")


def _short(text: str, width: int) -> str:
    """The text, filled up or cut to the width with a blank at its end."""
    return (text if len(text) < width else text[: width - 3] + "..").ljust(width)
