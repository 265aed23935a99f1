"""Turns a view of the store into what the fleet and rounds pages draw. Pure: no Streamlit, no clock, no file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dashboard import labels
from dashboard.local_times import local_times
from dashboard.quality import quality
from dashboard.view import View, in_order
from fleetgp.store.base import Window
from fleetgp.wire.messages import AnomalyEvent, RoundNotice

SILENT_AFTER_S = 60.0  # several health periods
LIVE_WITHIN_MS = 24 * 3_600_000  # frames whose own time is nearer than this to the system clock are a live stream
DAY_MS = 86_400_000
SPARK_FRAMES = 60
# what the coordinator says of the gain at the end of a note; the table has it in a column
GAIN_IN_NOTE = re.compile(r", -?[\d.]+ nats per reading better$")


# --- fleet ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Headline:
    """The fleet in numbers. messages, topics: of sensors, stored; round_age_s: on the system clock."""

    alive: int
    silent: int
    offline: int
    agents: int
    messages: int
    topics: int
    alarms_open: int
    alarms_day: int
    last_round: int | None
    round_answered: int
    round_expected: int
    round_age_s: float | None


def headline(view: View) -> Headline:
    words = Counter(presence(view, agent) for agent in view.agents)
    closed = next((notice for notice in view.rounds if notice.state == "closed"), None)
    return Headline(
        alive=words["alive"],
        silent=words["silent"],
        offline=words["offline"],
        agents=len(view.agents),
        messages=sum(series.rows for series in view.readings),
        topics=len(view.readings),
        alarms_open=sum(event.state != "closed" for event in view.events),
        alarms_day=sum(_is_of_day(view, event) for event in view.events),
        last_round=closed.round if closed else None,
        round_answered=len(closed.answered) if closed else 0,
        round_expected=len(set(closed.answered) | set(closed.missing)) if closed else 0,
        round_age_s=(view.looked_ms - closed.at_ms) / 1000 if closed else None,
    )


def _is_of_day(view: View, event: AnomalyEvent) -> bool:
    """Whether the event began in the 24 hours before the fleet's newest frame."""
    return view.newest_ms is not None and event.start_ms >= view.newest_ms - DAY_MS


def heard_ms(view: View, name: str) -> int | None:
    """When a program was last heard of, system clock."""
    times = [health.at_ms for health in view.healths if health.name == name]
    times += [status.at_ms for status in view.statuses if status.name == name]
    times += [view.noticed_ms[name]] if name in view.noticed_ms else []
    return max(times, default=None)


def presence(view: View, name: str) -> str:
    """alive, silent, offline or unknown."""
    status, heard = view.status(name), heard_ms(view, name)
    if status is not None and not status.is_online:
        return "offline"
    if heard is None:
        series = view.predictions.get(name)
        heard = series.last_ms if series is not None and _is_live(view, series.last_ms) else None
    if heard is None:
        return "unknown"
    return "alive" if view.looked_ms - heard <= SILENT_AFTER_S * 1000 else "silent"


def programs(view: View) -> dict[str, str]:
    """Presence of coordinator and bridge by role, those that were ever seen."""
    return {status.role: presence(view, status.name) for status in view.statuses if status.role != "agent"}


def frame_age_s(view: View, agent: str) -> float | None:
    """Seconds since the agent's newest frame came in, system clock; None where it has none.

    A live frame's own time says it best. A recorded frame's time is years old: there it is when we first saw the frame,
    or, for one that was there before us, when its agent was last heard of.
    """
    series = view.predictions.get(agent)
    if series is None:
        return None
    if _is_live(view, series.last_ms):
        return max(0.0, (view.looked_ms - series.last_ms) / 1000)
    seen = view.noticed_ms.get(agent) or heard_ms(view, agent)
    return None if seen is None else max(0.0, (view.looked_ms - seen) / 1000)


def _is_live(view: View, at_ms: int) -> bool:
    return abs(view.looked_ms - at_ms) <= LIVE_WITHIN_MS


def quality_frame(view: View) -> pd.DataFrame:
    """Per agent: coverage and skill (percent, NaN where not known), frames behind them, newest oddness."""
    rows = []
    for agent, window in view.recent.items():
        found = quality(window.mean)
        oddness = _oddness(window)
        rows.append(
            {
                "agent": agent,
                "coverage": _percent(found.coverage),
                "saved": _percent(found.skill),
                "rows": window.at_ms.size,
                "oddness": oddness,
            }
        )
    frame = pd.DataFrame(rows, columns=["agent", "coverage", "saved", "rows", "oddness"])
    return frame.set_index("agent")


def _oddness(window: Window) -> list[float]:
    """The newest scores as shares of their threshold, cut off above labels.ODDNESS_TOP."""
    score, threshold = window.mean.get("score"), window.mean.get("threshold")
    if score is None or threshold is None:
        return []
    shares = score[-SPARK_FRAMES:] / threshold[-SPARK_FRAMES:]
    return [float(share) for share in np.minimum(shares, labels.ODDNESS_TOP) if np.isfinite(share)]


def _percent(share: float | None) -> float:
    return np.nan if share is None else 100 * share


def fleet_frame(view: View, quality: pd.DataFrame) -> pd.DataFrame:
    """One row an agent, as the fleet page shows it; columns are named in ``labels``."""
    opened = Counter(event.agent for event in view.events if event.state != "closed")
    of_day = Counter(event.agent for event in view.events if _is_of_day(view, event))
    rows = []
    for agent in view.agents:
        status, series = view.status(agent), view.predictions.get(agent)
        found = quality.loc[agent] if agent in quality.index else None
        state = status.state if status is not None else ""
        rows.append(
            {
                labels.AGENT: agent,
                labels.PRESENCE: labels.DOTS[presence(view, agent)],
                labels.LAST_FRAME: labels.age(frame_age_s(view, agent)),
                labels.FRAMES: series.rows if series is not None else 0,
                labels.SAVED: found["saved"] if found is not None else np.nan,
                labels.COVERAGE: found["coverage"] if found is not None else np.nan,
                labels.ALARMS: opened[agent],
                labels.ALARMS_DAY: of_day[agent],
                labels.LEARNING: labels.LEARNING_WORDS.get(state, state or "–"),
                labels.ODDNESS: found["oddness"] if found is not None else [],
            }
        )
    return pd.DataFrame(rows)


def most_rows(quality: pd.DataFrame) -> int:
    """Frames behind the best-known agent's figures."""
    return 0 if quality.empty else int(quality["rows"].max())


def agent_summary(view: View, agent: str, quality: pd.DataFrame) -> str:
    """One line on an agent: presence, newest frame, learning, error and coverage."""
    status = view.status(agent)
    found = quality.loc[agent] if agent in quality.index else None
    return labels.agent_line(
        presence=presence(view, agent),
        age_s=frame_age_s(view, agent),
        state=status.state if status is not None else "",
        skill=_share(found, "saved"),
        coverage=_share(found, "coverage"),
        alarms_open=sum(event.agent == agent and event.state != "closed" for event in view.events),
    )


def _share(found: pd.Series | None, name: str) -> float | None:
    return None if found is None or np.isnan(found[name]) else float(found[name]) / 100


def footer(view: View, zone: str) -> str:
    """Programs, store and time zone in one line."""
    megabytes = view.info.megabytes if view.info is not None else 0.0
    parts = [labels.programs(programs(view)), labels.store_line(view.location, megabytes), labels.zone_note(zone)]
    return "   ".join(parts)


# --- rounds -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RoundsData:
    """strip: round, agent, part. costs: round, direction, kilobytes. closing: round, seconds. table, changes: as shown."""

    strip: pd.DataFrame
    costs: pd.DataFrame
    closing: pd.DataFrame
    table: pd.DataFrame
    changes: pd.DataFrame


def tells_change(notice: RoundNotice) -> bool:
    """Whether a round changed the basis, or worked on it."""
    return notice.state == "closed" and notice.basis > 0 and (notice.gain is not None or bool(notice.note))


def rounds_data(
    rounds: Sequence[RoundNotice], zone: str, most: int = 60, changes: Sequence[RoundNotice] = ()
) -> RoundsData:
    """Frames on the newest ``most`` closed rounds; the table also lists one that is open. changes: newest first."""
    closed = [notice for notice in rounds if notice.state == "closed"][:most]
    agents = in_order(name for n in closed for name in (*n.answered, *n.missing, *n.included))
    strip = [(n.round, agent, part) for n in closed for agent in agents if (part := _part(n, agent)) is not None]
    costs = [
        (notice.round, direction, size / 1e3)
        for notice in closed
        for direction, size in ((labels.FROM_AGENTS, notice.bytes_received), (labels.TO_AGENTS, notice.bytes_sent))
    ]
    return RoundsData(
        pd.DataFrame(strip, columns=["round", "agent", "part"]),
        pd.DataFrame(costs, columns=["round", "direction", "kilobytes"]),
        pd.DataFrame([(n.round, n.seconds) for n in closed], columns=["round", "seconds"]),
        pd.DataFrame([_round_row(notice, zone) for notice in rounds[:most]]),
        pd.DataFrame([_change_row(notice, zone) for notice in changes]),
    )


def _part(notice: RoundNotice, agent: str) -> str | None:
    """How an agent took part, None where it was not in the fleet."""
    if agent in notice.answered:
        return labels.TOOK_PART
    if agent in notice.included:
        return labels.KEPT
    return labels.ABSENT if agent in notice.missing else None


def _round_row(notice: RoundNotice, zone: str) -> dict[str, object]:
    is_closed = notice.state == "closed"
    return {
        labels.ROUND: notice.round,
        labels.ROUND_STATE: "closed" if is_closed else "open",
        labels.ROUND_CLOSED: _closed(notice, zone) if is_closed else "–",
        labels.ROUND_ANSWERED: len(notice.answered),
        labels.ROUND_MISSING: labels.names(notice.missing) or "–",
        labels.ROUND_RECEIVED: labels.data_size(notice.bytes_received),
        labels.ROUND_SENT: labels.data_size(notice.bytes_sent),
        labels.ROUND_SECONDS: notice.seconds,
        labels.ROUND_BASIS: notice.basis,
    }


def _closed(notice: RoundNotice, zone: str) -> str:
    return f"{local_times(np.array([notice.at_ms]), zone)[0]:%Y-%m-%d %H:%M:%S}"


def _change_row(notice: RoundNotice, zone: str) -> dict[str, object]:
    return {
        labels.ROUND_CLOSED: _closed(notice, zone),
        labels.ROUND: notice.round,
        labels.ROUND_BASIS: notice.basis,
        labels.CHANGE_WHAT: notice.note if notice.gain is None else GAIN_IN_NOTE.sub("", notice.note),
        labels.CHANGE_GAIN: labels.nats(notice.gain),
        labels.CHANGE_WORDS: labels.gain(notice.gain),
        labels.ROUND_RECEIVED: labels.data_size(notice.bytes_received),
        labels.ROUND_SENT: labels.data_size(notice.bytes_sent),
        labels.ROUND_SECONDS: notice.seconds,
    }
