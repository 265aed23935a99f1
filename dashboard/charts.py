"""Altair charts of the frames that the query modules make. Specs stay the same from tick to tick; only data change."""

from __future__ import annotations

import altair as alt
import pandas as pd

from dashboard import labels
from dashboard.device_queries import ChannelData
from dashboard.layers import LayerData
from dashboard.palette import Palette
from dashboard.view import in_order

Drawing = alt.Chart | alt.LayerChart | alt.FacetChart

CHANNEL_HEIGHT = 170
RESIDUAL_HEIGHT = 64
LAYERS_HEIGHT = 84
SCORE_HEIGHT = 130
COST_HEIGHT = 190
STRIP_ROW = 22
# a clock of 24 hours: the default writes 13:05 as 01:05
CLOCK = '{"seconds": ":%S", "minutes": "%H:%M", "hours": "%H:%M", "day": "%a %d", "date": "%b %d", "month": "%b", "year": "%Y"}'
AXIS_WIDTH = 46  # the same on all charts of a column, so that their time axes stand below one another
LEGEND_PLACES = (0, 100, 210, 335, 450, 630, 880, 1010)  # of the words, and where the row ends
BUSY = 150  # more readings than this are drawn as a line with small dots

Z_LIMIT = 6.0
Z_STRIPE = 1.645  # 90 % of a normal law
Z_MARKED = 3.0


def _time_axis(is_labelled: bool = True) -> alt.X:
    axis = alt.Axis(
        title=None,
        labels=is_labelled,
        ticks=is_labelled,
        grid=False,
        labelOverlap=True,
        tickCount=6,
        labelExpr=f"timeFormat(datum.value, {CLOCK})",
    )
    return alt.X("at:T", axis=axis)


def _value_axis() -> alt.Axis:
    return alt.Axis(title=None, tickCount=4, minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH)


def _finish(chart: Drawing, height: int) -> Drawing:
    """The chart at its height, axes included, with less air around it than Streamlit's theme leaves."""
    air = {"left": 0, "right": 4, "top": 4, "bottom": 5}
    finished: Drawing = (
        chart.properties(height=height, padding=air)
        .configure_axis(labelPadding=6, titlePadding=6)
        .configure_legend(padding=0, offset=6, columnPadding=16)
        .configure_view(strokeWidth=0)
    )
    return finished


def _shades(spans: pd.DataFrame, colours: Palette, points: pd.DataFrame) -> alt.Chart:
    """Anomalies as shaded stretches of time, over the full height."""
    if spans.empty:  # one of no width, since the browser complains about a time axis without any time
        start = points["at"].head(1)
        spans = pd.DataFrame({"start": start, "end": start})
    shades: alt.Chart = (
        alt.Chart(spans)
        .mark_rect(color=colours.anomaly, opacity=colours.shade_opacity)
        .encode(x=alt.X("start:T"), x2="end:T")
    )
    return shades


def channel(data: ChannelData, spans: pd.DataFrame, colours: Palette) -> Drawing:
    """Readings of one channel over the band and the line that the agent had announced."""
    base = alt.Chart(data.points).encode(x=_time_axis())
    y = alt.Y("observed:Q", scale=alt.Scale(domain=list(data.extent), zero=False, nice=False), axis=_value_axis())
    tooltip = [
        alt.Tooltip("at:T", title="time", format="%Y-%m-%d %H:%M:%S"),
        alt.Tooltip("observed:Q", title=labels.LEGEND["observed"], format=".4~g"),
        alt.Tooltip("mean:Q", title=labels.LEGEND["mean"], format=".4~g"),
        alt.Tooltip("low:Q", title="band from", format=".4~g"),
        alt.Tooltip("high:Q", title="band to", format=".4~g"),
        alt.Tooltip("z:Q", title="standard deviations off", format="+.1f"),
    ]
    is_busy = data.readings > BUSY
    look = alt.Color(
        "look:N", scale=alt.Scale(domain=["reading", "anomaly"], range=[colours.observed, colours.anomaly]), legend=None
    )
    size = alt.condition("datum.look == 'anomaly'", alt.value(26), alt.value(5 if is_busy else 22))
    layers = alt.layer(
        _shades(spans, colours, data.points),
        base.mark_area(color=colours.expected, opacity=colours.band_opacity, clip=True).encode(
            y=alt.Y("low:Q"), y2="high:Q"
        ),
        base.mark_line(color=colours.expected, strokeWidth=1.5).encode(y="mean:Q"),
        base.mark_rule(color=colours.observed, opacity=0.35).encode(y="observed_low:Q", y2="observed_high:Q"),
        base.mark_line(color=colours.observed, strokeWidth=0.7, opacity=0.55).encode(y=y),
        base.mark_circle(opacity=0.95).encode(y=y, color=look, size=size, tooltip=tooltip),
    )
    return _finish(layers, CHANNEL_HEIGHT)


def residuals(data: ChannelData, spans: pd.DataFrame, colours: Palette) -> Drawing:
    """How far each reading lay from what was expected, in standard deviations."""
    y = alt.Y(
        "z:Q",
        scale=alt.Scale(domain=[-Z_LIMIT, Z_LIMIT], clamp=True, nice=False),
        axis=alt.Axis(
            title=None, values=[-3, 0, 3], minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH, format="+d", grid=False
        ),
    )
    stripe = (
        alt.Chart(pd.DataFrame({"low": [-Z_STRIPE], "high": [Z_STRIPE]}))
        .mark_rect(color=colours.quiet, opacity=0.18)
        .encode(y="low:Q", y2="high:Q")
    )
    colour = alt.condition(f"abs(datum.z) > {Z_MARKED}", alt.value(colours.anomaly), alt.value(colours.observed))
    sticks = (
        alt.Chart(data.points)
        .mark_rule(strokeWidth=1.2, clip=True)
        .encode(
            x=_time_axis(is_labelled=False),
            y=y,
            y2=alt.datum(0),
            color=colour,
            tooltip=[
                alt.Tooltip("at:T", title="time", format="%Y-%m-%d %H:%M:%S"),
                alt.Tooltip("z:Q", title="standard deviations off", format="+.1f"),
            ],
        )
    )
    return _finish(alt.layer(stripe, _shades(spans, colours, data.points), sticks), RESIDUAL_HEIGHT)


def layers(data: LayerData, spans: pd.DataFrame, colours: Palette) -> Drawing:
    """What the expectation is made of: one line a layer about zero."""
    base = alt.Chart(data.points).encode(x=_time_axis(is_labelled=False))
    axis = alt.Axis(title=None, tickCount=3, minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH, grid=False)
    scale = alt.Scale(domain=list(data.extent), nice=False)
    shown = {"shared": colours.expected, "deviation": colours.deviation, "local": colours.local}
    zero = alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(color=colours.quiet, opacity=0.6).encode(y="zero:Q")
    tooltip = [
        alt.Tooltip("at:T", title="time", format="%Y-%m-%d %H:%M:%S"),
        *(alt.Tooltip(f"{name}:Q", title=labels.LAYER_LEGEND[name], format="+.3~g") for name in shown),
    ]
    lines = [
        base.mark_line(color=colour, strokeWidth=1.4, clip=True).encode(y=alt.Y(f"{name}:Q", axis=axis, scale=scale))
        for name, colour in shown.items()
    ]
    points = base.mark_circle(size=30, opacity=0, clip=True).encode(y="shared:Q", tooltip=tooltip)
    return _finish(alt.layer(_shades(spans, colours, data.points), zero, *lines, points), LAYERS_HEIGHT)


def score(frame: pd.DataFrame, spans: pd.DataFrame, colours: Palette) -> Drawing:
    """The score over time with the threshold of the alarm; the axis is linear at first and then by powers of ten."""
    base = alt.Chart(frame).encode(x=_time_axis())
    y = alt.Y(
        "score:Q",
        scale=alt.Scale(type="symlog", constant=8, domainMin=0),
        axis=alt.Axis(title=None, values=[0, 2, 5, 10, 20, 50, 100, 300], minExtent=AXIS_WIDTH, maxExtent=AXIS_WIDTH),
    )
    tooltip = [
        alt.Tooltip("at:T", title="time", format="%Y-%m-%d %H:%M:%S"),
        alt.Tooltip("score:Q", format=".1f"),
        alt.Tooltip("threshold:Q", format=".1f"),
    ]
    layers = alt.layer(
        _shades(spans, colours, frame),
        base.mark_area(color=colours.observed, opacity=0.12).encode(y=y),
        base.mark_line(color=colours.observed, strokeWidth=1.2).encode(y=y),
        base.mark_line(color=colours.anomaly, strokeWidth=1.2, strokeDash=[5, 4]).encode(y="threshold:Q"),
        base.mark_circle(size=30, opacity=0).encode(y=y, tooltip=tooltip),
    )
    return _finish(layers, SCORE_HEIGHT)


def legend(colours: Palette, *, with_layers: bool = False) -> Drawing:
    """What a channel's charts show, once for the page."""
    shown = labels.LEGEND | (labels.LAYER_LEGEND if with_layers else {})
    width = LEGEND_PLACES[len(shown)]
    items = pd.DataFrame({"x": LEGEND_PLACES[: len(shown)], "what": list(shown), "word": list(shown.values())})
    base = alt.Chart(items).encode(x=alt.X("x:Q", scale=alt.Scale(domain=[0, width], range=[8, 8 + width]), axis=None))
    words = base.mark_text(align="left", dx=14, fontSize=13, color=colours.observed).encode(text="word:N")
    strokes = {
        "mean": colours.expected,
        "shared": colours.expected,
        "deviation": colours.deviation,
        "local": colours.local,
    }
    marks = [
        base.transform_filter("datum.what == 'observed'").mark_circle(size=50, color=colours.observed, opacity=1),
        base.transform_filter("datum.what == 'band'").mark_square(
            size=190, color=colours.expected, opacity=colours.band_opacity + 0.1
        ),
        base.transform_filter("datum.what == 'anomaly'").mark_square(
            size=190, color=colours.anomaly, opacity=colours.shade_opacity + 0.2
        ),
        base.transform_filter("datum.what == 'anomaly'").mark_circle(size=40, color=colours.anomaly, opacity=1),
        *(
            base.transform_filter(f"datum.what == '{name}'").mark_tick(
                orient="horizontal", size=20, thickness=2.5, color=colour, opacity=1
            )
            for name, colour in strokes.items()
        ),
    ]
    return _finish(alt.layer(*marks, words).properties(width=width + 20), 24)


def taking_part(strip: pd.DataFrame, colours: Palette) -> Drawing:
    """Agents by rounds, coloured by whether and how each took part."""
    parts = [labels.TOOK_PART, labels.KEPT, labels.ABSENT]
    colour = alt.Color(
        "part:N",
        scale=alt.Scale(domain=parts, range=[colours.expected, colours.kept, colours.anomaly]),
        legend=alt.Legend(title=None, orient="top"),
    )
    chart = (
        alt.Chart(strip)
        .mark_rect(stroke="transparent", strokeWidth=2, cornerRadius=1)
        .encode(
            x=alt.X(
                "round:O", axis=alt.Axis(title="round", labelOverlap=True, labelAngle=0), scale=alt.Scale(padding=0.12)
            ),
            y=alt.Y("agent:N", axis=alt.Axis(title=None), scale=alt.Scale(padding=0.12), sort=in_order(strip["agent"])),
            color=colour,
            tooltip=["agent:N", "round:O", alt.Tooltip("part:N", title="took part")],
        )
    )
    return _finish(chart, 76 + STRIP_ROW * max(1, strip["agent"].nunique()))


def costs(frame: pd.DataFrame, colours: Palette) -> Drawing:
    """Kilobytes of a round, to and from agents."""
    directions = [labels.FROM_AGENTS, labels.TO_AGENTS]
    chart = (
        alt.Chart(frame)
        .mark_bar()
        .encode(
            x=alt.X("round:O", axis=alt.Axis(title="round", labelOverlap=True, labelAngle=0)),
            y=alt.Y("kilobytes:Q", axis=alt.Axis(title="kB", tickCount=4)),
            color=alt.Color(
                "direction:N",
                scale=alt.Scale(domain=directions, range=[colours.expected, colours.kept]),
                legend=alt.Legend(title=None, orient="top"),
            ),
            tooltip=["round:O", "direction:N", alt.Tooltip("kilobytes:Q", format=".1f")],
        )
    )
    return _finish(chart, COST_HEIGHT)


def closing(frame: pd.DataFrame, colours: Palette) -> Drawing:
    """Seconds from opening a round to closing it."""
    chart = (
        alt.Chart(frame)
        .mark_bar(color=colours.quiet)
        .encode(
            x=alt.X("round:O", axis=alt.Axis(title="round", labelOverlap=True, labelAngle=0)),
            y=alt.Y("seconds:Q", axis=alt.Axis(title="s", tickCount=4)),
            tooltip=["round:O", alt.Tooltip("seconds:Q", format=".2f")],
        )
    )
    return _finish(chart, COST_HEIGHT)
