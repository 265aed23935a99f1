"""Every word, unit and number format on the screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

TITLE = "FleetGP"
FLEET_PAGE, DEVICE_PAGE, ROUNDS_PAGE = "Fleet", "Device", "Rounds"

# --- fleet page -------------------------------------------------------------------------------------------------------
AGENTS_ALIVE = "Agents alive"
MESSAGES = "Sensor messages stored"
MESSAGES_HELP = "Messages that sensors sent and the bridge stored. One message may hold several readings."
ALARMS_OPEN = "Alarms open"
ALARMS_OPEN_HELP = "Anomalies that have begun and not ended yet, over the whole fleet."
LAST_ROUND = "Last round"
LAST_ROUND_HELP = "The last time the coordinator added up what the agents learned. Its age is on the system clock."

AGENT = "Agent"
PRESENCE = "Presence"
LAST_FRAME = "Last frame"
FRAMES = "Frames"
SAVED = "Error saved"
COVERAGE = "In 90 % band"
ALARMS = "Open alarms"
ALARMS_DAY = "Alarms in 24 h"
LEARNING = "Learning"
ODDNESS = "Oddness"
ODDNESS_TOP = 1.2  # of the threshold; what is higher is drawn at the top
LATEST_EVENTS = "Latest anomalies"
NO_FLEET_EVENTS = "No anomaly is on record."

FLEET_HELP: Mapping[str, str] = {
    PRESENCE: "alive: heard from within the last minute. silent: connected, but says nothing. offline: it said goodbye, "
    "or its connection broke.",
    LAST_FRAME: "How long ago the newest frame (one reading of every channel) came in.",
    FRAMES: "Frames predicted and stored so far.",
    SAVED: "How much smaller the agent's error is than that of simply repeating the last reading. 0 %: no better; below "
    "zero: worse; 100 %: perfect. A fault lowers it for a while, since the agent keeps to what is normal.",
    COVERAGE: "Share of recent readings that fell inside the band the agent had announced. About 90 % is right; much less: "
    "the agent is too sure of itself, or the device behaves oddly; much more: the bands are wider than needed.",
    ALARMS: "Anomalies going on now.",
    ALARMS_DAY: "Anomalies that began in the 24 hours before the newest frame of the fleet.",
    LEARNING: "alone: from its own readings only. with the fleet: it also uses what the other agents learned.",
    ODDNESS: "How unlikely each of the newest frames was. A line that touches the top of its cell has passed the threshold "
    "of the alarm.",
}


def quality_note(rows: int) -> str:
    return (
        f"Select a row to open the device. {SAVED} and {COVERAGE.lower()} count each agent's newest {count(rows)} frames at "
        "most: the error is compared with that of repeating the last reading, and 90 % of readings should fall in the band."
    )


def of(part: int, whole: int) -> str:
    return f"{part} of {whole}"


def silent_note(silent: int, offline: int) -> str:
    """What the agents that are not alive are."""
    parts = [f"{number} {word}" for number, word in ((silent, "silent"), (offline, "offline")) if number]
    return ", ".join(parts) or "none silent, none offline"


def topics_note(topics: int) -> str:
    return f"from {topics} topic{'s' if topics != 1 else ''}"


def alarms_note(of_day: int) -> str:
    return f"{of_day} began in the last 24 h"


def round_note(answered: int, expected: int, age_s: float | None) -> str:
    return "the coordinator has closed none" if age_s is None else f"{of(answered, expected)} answered, {age(age_s)}"


# --- device page ------------------------------------------------------------------------------------------------------
SCORE_TITLE = "How odd each frame was"
SCORE_NOTE = (
    "Score 3 means: a frame at least this odd comes once in a thousand; each further point, ten times rarer. "
    "Above the dashed line the agent raises an alarm."
)
RANGE = "Range, up to the newest frame"
LIVE = "Live"
LIVE_HELP = "Off: the charts stand still, so that you can look at one moment."
BAND_NOTE = "90 % of readings should fall in the band."
RESIDUAL_NOTE = (
    "The strip below each chart shows how far each reading lay from what was expected, in standard deviations: 9 of 10 stay "
    "within the grey stripe (±1.6), those beyond ±3 are marked, the strip ends at ±6."
)
ANOMALY_NOTE = "Anomalies are shaded, and marked on the channels that stood out."
LEGEND = {"observed": "reading", "mean": "expected", "band": "90 % band", "anomaly": "anomaly"}
LAYERS = "Layers"
LAYERS_HELP = "Shows below each channel what the expectation is made of."
LAYER_LEGEND = {
    "shared": "the fleet's knowledge",
    "deviation": "what this device does otherwise",
    "local": "its own pattern",
}
LAYERS_NOTE = (
    "The coloured lines at the bottom split the expected change from the last reading to the next: what all devices of the "
    "fleet do in such a moment, what this one does otherwise, and a pattern of its own that nothing else explains."
)
LEVELS_NOTE = (
    "The coloured lines at the bottom split how far the expectation lies from the fleet's centre: what all devices of the "
    "fleet do in such a moment, what this one does otherwise, and a pattern of its own that nothing else explains."
)
NO_LAYERS = (
    "What the expectations are made of is not told in this range: the agent is of an earlier version, or its setting "
    "`agent.layers` is off."
)
ALONE_LINE = "Nothing of it is from the fleet: the device learns alone."
EVENTS_TITLE = "Anomalies"
NO_EVENTS = "No anomaly of this device is on record."
NO_CHANNEL_DATA = "No readings of this channel in this range."
EVENT_START = "Start"
EVENT_STATE = "State"
EVENT_DURATION = "Duration"
EVENT_PEAK = "Peak score"
EVENT_BLAME = "What stood out"
EVENT_NOTE = "Note"
NAMED_SHARE = 0.05  # of an anomaly's score: channels with less are not named
EVENT_STATES: Mapping[bool, str] = {False: "going on", True: "over"}  # by whether it is closed

RANGES_MS: Mapping[str, int | None] = {
    "10 min": 600_000,
    "1 hour": 3_600_000,
    "6 hours": 6 * 3_600_000,
    "1 day": 86_400_000,
    "1 week": 7 * 86_400_000,
    "All": None,
}


def level_line(unit: str, expected: float, fleet: float, even: float) -> str:
    """Where a device is expected, on average, and where the fleet would have it; even: a difference as good as none."""
    own = expected - fleet
    if abs(own) <= even:
        return f"Runs where the fleet would have it: at {quantity(expected, unit, even)} on average."
    word, there = "above" if own > 0 else "below", quantity(fleet, unit, own)
    here = quantity(expected, unit, own)
    return f"Runs {quantity(abs(own), unit)} {word} where the fleet would have it, all else as it is: at {here}, not {there}."


def step_line(unit: str, shared: float, own: float) -> str:
    """What layers of steps say where they tell of no level; a frame, on average."""
    return f"On average the fleet's knowledge moves it by {signed(shared, unit)} a frame, its own ways by {signed(own, unit)}."


def signed(value: float, unit: str) -> str:
    """With its sign: '+0.021 °C'."""
    return f"{'−' if value < 0 else '+'}{quantity(abs(value), unit)}"


def quantity(value: float, unit: str, beside: float | None = None) -> str:
    """Two significant digits and the unit: '2.1 °C'; as many decimals as a number beside it would have."""
    size = abs(value if beside is None else beside)
    decimals = 1 - math.floor(math.log10(size)) if size > 0 else 1
    return f"{value:.{min(max(decimals, 0), 12)}f} {unit}".strip().replace("-", "−")


def resolution(step_ms: int) -> str:
    """What one point of a chart stands for."""
    if step_ms == 0:
        return "Every point is one frame."
    return (
        f"Every point is the average of {duration(step_ms / 1000)}; thin lines reach from the lowest to the highest reading, "
        "strip and score show the most extreme frame."
    )


def channels_note(step_ms: int, zone: str) -> str:
    return " ".join([BAND_NOTE, RESIDUAL_NOTE, ANOMALY_NOTE, resolution(step_ms), zone_note(zone)])


# --- rounds page ------------------------------------------------------------------------------------------------------
ROUND_SENTENCE = (
    "In a round every agent sends a short summary of what it has learned (never its readings), the coordinator adds them "
    "up, and every agent gets back what the whole fleet knows."
)
TOOK_PART = "answered"
KEPT = "earlier summary used"
ABSENT = "did not answer"
STRIP_TITLE = "Who took part"
STRIP_HELP = (
    f"{TOOK_PART}: its summary came in time. {KEPT}: it did not answer, but what it sent before still counts. "
    f"{ABSENT}: nothing of it is in the round. No cell: it was not in the fleet yet."
)
BYTES_TITLE = "Data per round"
SECONDS_TITLE = "Time until the round closed"
FROM_AGENTS = "from agents"
TO_AGENTS = "to agents"
NO_ROUNDS = (
    "No round has closed yet. The coordinator opens one every minute, or as its setting coordinator.round_s says."
)
ROUNDS_TITLE = "All rounds"
CHANGES_TITLE = "Changes of the basis"
CHANGES_HELP = (
    "The basis is what all summaries refer to: scales, features, and how far their kernels reach. From time to time the "
    "coordinator finds a better one. Gain: by how much better it foresaw the agents' newest frames, in nats a reading."
)
NO_CHANGES = (
    "No change is on record. The coordinator changes the basis when the fleet's scale has moved, when it places features "
    "where the frames lie, or when tuning finds kernels that foresee better; it says here what that gained."
)
CHANGE_WHAT = "What happened"
CHANGE_GAIN = "Gain"
CHANGE_WORDS = "In words"
ROUND = "Round"
ROUND_CLOSED = "Closed"
ROUND_ANSWERED = "Answered"
ROUND_MISSING = "Missing"
ROUND_RECEIVED = "From agents"
ROUND_SENT = "To agents"
ROUND_SECONDS = "Seconds"
ROUND_BASIS = "Basis"
ROUND_STATE = "State"

# --- nothing to see ---------------------------------------------------------------------------------------------------
MISSING_TITLE = "No history yet"
EMPTY_TITLE = "The history is empty"
UNREADABLE_TITLE = "The history cannot be read"


def missing_text(location: str) -> str:
    return (
        f"There is no history at `{location}` yet. The bridge makes it when it starts:\n\n"
        "- to see everything at once, run `fleetgp demo`;\n"
        "- on your own broker, run `fleetgp bridge --config fleetgp.toml`;\n"
        "- if the history lies elsewhere, start `fleetgp dashboard --store PATH`.\n\n"
        "This page looks again by itself every few seconds."
    )


def empty_text(location: str) -> str:
    return (
        f"The bridge has opened `{location}`, but nothing has been stored yet.\n\n"
        "- Is an agent running? `fleetgp agent --config fleetgp.toml`\n"
        "- Do your sensors publish on the topics in the setting `bridge.topics`?\n"
        "- `fleetgp doctor` checks broker, credentials, clock and store, and says what to do.\n\n"
        "This page looks again by itself every few seconds."
    )


def unreadable_text(location: str, detail: str) -> str:
    if "://" in location:
        return (
            f"The history at `{location}` cannot be read just now:\n\n> {detail}\n\n"
            "Check the settings `store.url`, `store.database` and how to be let in; `fleetgp doctor` says more. "
            "This page looks again by itself every few seconds."
        )
    return (
        f"`{location}` is there, but does not open as a history of ours:\n\n> {detail}\n\n"
        "Check the setting `store.path` (or `--store`), and that this user may read the file. "
        "This page looks again by itself every few seconds."
    )


NO_AGENTS = "No agent has reported yet. Start one with `fleetgp agent --config fleetgp.toml`."


def no_frames(agent: str) -> str:
    return f"{agent} has not predicted a frame yet. An agent starts to predict once its first frames have come in."


# --- presence ---------------------------------------------------------------------------------------------------------
DOTS: Mapping[str, str] = {"alive": "● alive", "silent": "◐ silent", "offline": "○ offline", "unknown": "? unknown"}
LEARNING_WORDS: Mapping[str, str] = {
    "starting": "starting",
    "choosing": "choosing its settings from the first readings",
    "learning": "alone",
    "federated": "with the fleet",
    "stopped": "stopped",
}


def programs(words: Mapping[str, str]) -> str:
    """One line on coordinator and bridge; words: presence by role."""
    parts = [f"{role} {DOTS.get(words.get(role, ''), 'not seen')}" for role in ("bridge", "coordinator")]
    return " · ".join(parts).capitalize()


def store_line(location: str, megabytes: float) -> str:
    return f"History: {location}, {megabytes:.1f} MB"


def agent_line(
    *, presence: str, age_s: float | None, state: str, skill: float | None, coverage: float | None, alarms_open: int
) -> str:
    """One line on one agent, in Markdown."""
    parts = [f"**{DOTS[presence]}**", f"last frame {age(age_s)}"]
    if state in LEARNING_WORDS:
        parts.append(
            f"learning {LEARNING_WORDS[state]}" if state in ("learning", "federated") else LEARNING_WORDS[state]
        )
    parts.append(f"error {saved(skill)}")
    if coverage is not None:
        parts.append(f"{percent(coverage)} of readings in the band (90 % is right)")
    parts.append(f"**{alarms_open} open alarm{'s' if alarms_open != 1 else ''}**" if alarms_open else "no open alarm")
    return " · ".join(parts)


# --- numbers ----------------------------------------------------------------------------------------------------------
def age(seconds: float | None) -> str:
    """'3 s ago'; a dash where unknown."""
    return "–" if seconds is None else f"{duration(float(max(0, int(seconds))))} ago"


def duration(seconds: float) -> str:
    """A span in at most two units: '45 s', '3 min 20 s', '2 h', '1 day 4 h'."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 1 else f"{whole} s"
    units = (("day", 86400), ("h", 3600), ("min", 60), ("s", 1))
    first = next(i for i, (_, size) in enumerate(units) if whole >= size)
    name, size = units[first]
    count, rest = divmod(whole, size)
    text = f"{count} {name}" + ("s" if name == "day" and count > 1 else "")
    if first + 1 < len(units):
        lesser, lesser_size = units[first + 1]
        if part := rest // lesser_size:
            text += f" {part} {lesser}"
    return text


def count(value: int) -> str:
    """Thousands apart by a thin space."""
    return f"{value:,}".replace(",", "\u2009")


def nats(gain: float | None) -> str:
    """'+0.031'."""
    return "–" if gain is None else f"{gain:+.3f}".replace("-", "−")


def gain(nats: float | None) -> str:
    """Nats a reading in plain words: what as many nats would be in the width of the bands."""
    if nats is None:
        return "not measured"
    if abs(nats) < 0.002:
        return "no difference"
    share = f"{-100 * math.expm1(-abs(nats)):.2g} %"
    if nats < 0:
        return f"a loss, as of bands {share} wider"
    word = "small" if nats < 0.01 else "clear" if nats < 0.05 else "large"
    return f"{word}, as of bands {share} narrower"


def data_size(size: int) -> str:
    """Bytes in the unit that reads best."""
    if size < 1000:
        return f"{size} B"
    if size < 999_950:
        return f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:.1f} MB"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def saved(skill: float | None) -> str:
    """Skill in plain words."""
    if skill is None:
        return "not known yet"
    if abs(skill) < 0.005:
        return "as good as repeating the last reading"
    word = "smaller" if skill > 0 else "larger"
    return f"{100 * abs(skill):.0f} % {word} than by repeating the last reading"


def blame(shares: Mapping[str, float], most: int = 3) -> str:
    """'mainly temperature (72 %), also current (20 %)': the channels that made an anomaly, largest first."""
    ranked = sorted(((share, name) for name, share in shares.items() if share >= NAMED_SHARE), reverse=True)[:most]
    if not ranked:
        return "all channels together"
    words = [f"{name} ({100 * share:.0f} %)" for share, name in ranked]
    if len(words) == 1:
        return words[0]
    return f"mainly {words[0]}, also {', '.join(words[1:])}"


def channel_title(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def names(items: Sequence[str], most: int = 6) -> str:
    """A list of names that does not outgrow its cell."""
    shown = ", ".join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def zone_note(zone: str) -> str:
    return f"Times are in {zone}."
