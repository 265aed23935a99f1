"""Every setting FleetGP knows: the only place that knows a name, a default, a unit, a range or a meaning."""

from __future__ import annotations

from dataclasses import dataclass

from fleetgp.models import MODELS

Value = str | int | float | bool


@dataclass(frozen=True)
class Setting:
    """One setting. Its type is that of its default. low, high: the range, ends included; None = no limit.

    is_id: must be usable in topics and as a client id. is_secret: never printed.
    """

    name: str
    default: Value
    unit: str
    help: str
    is_secret: bool = False
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    is_id: bool = False

    @property
    def variable(self) -> str:
        """Its environment variable: ``mqtt.url`` is FLEETGP_MQTT_URL."""
        return "FLEETGP_" + self.name.replace(".", "_").upper()

    def as_meant(self, told: str | float) -> Value:
        """A value that a program told of its own settings, of this one's type; a flag travels as "true" or "false"."""
        match self.default:
            case bool():
                return told == "true"
            case int():
                return int(told)
        return told

    def allowed(self) -> str:
        """Unit and range or choices, e.g. ``s, 0 to 60`` or ``text | json``; for tables and help."""
        if self.choices:
            return " | ".join(self.choices)
        return ", ".join(part for part in (self.unit, self._range()) if part)

    def expected(self) -> str:
        """What a value must be, in plain words for an error message."""
        if self.choices:
            return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)
        match self.default:
            case bool():
                return "true or false"
            case int():
                words = "a whole number"
            case float():
                words = "a number"
            case _:
                return "text"
        unit = f" of {'seconds' if self.unit == 's' else self.unit}" if self.unit else ""
        span = f" {self._range()}" if self._range() else ""
        return words + unit + span

    def _range(self) -> str:
        if self.low is not None and self.high is not None:
            return f"from {_plain(self.low)} to {_plain(self.high)}"
        if self.low is not None:
            return f"from {_plain(self.low)}"
        return f"up to {_plain(self.high)}" if self.high is not None else ""


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


_HEALTH = "how often its health report is published"
_CLOCKS = ("live", "recording", "receive")

SETTINGS: tuple[Setting, ...] = (
    Setting("fleet", "home", "", "name of the fleet; agents of one fleet share knowledge and topics", is_id=True),
    Setting("mqtt.url", "mqtt://127.0.0.1:1883", "", "the broker: mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS"),
    Setting("mqtt.version", "3.1.1", "", "version of MQTT to speak", choices=("3.1.1", "5")),
    Setting("mqtt.username", "", "", "name to log in with; empty = none"),
    Setting("mqtt.password", "", "", "password to log in with; better kept in mqtt.password_file", is_secret=True),
    Setting("mqtt.password_file", "", "", "file whose first line is the password"),
    Setting("mqtt.ca_file", "", "", "certificates (PEM) that vouch for the broker; empty = those of the system"),
    Setting("mqtt.cert_file", "", "", "our own certificate (PEM), where the broker asks for one"),
    Setting("mqtt.key_file", "", "", "private key (PEM) of our own certificate"),
    Setting("mqtt.keepalive_s", 30, "s", "how long the line may be quiet before it is probed", low=5, high=3600),
    Setting(
        "mqtt.heartbeat_s",
        20.0,
        "s",
        "how often we send ourselves a message through the broker; three missed ones make us reconnect",
        low=1,
        high=3600,
    ),
    Setting("data.dir", "fleetgp-data", "", "folder for all that is kept; every program uses a sub folder of it"),
    Setting("agent.id", "", "", "name of this agent, unique in its fleet; an agent needs one", is_id=True),
    Setting("agent.topic", "", "", "MQTT topic of all channels that name none themselves"),
    Setting("agent.lateness_s", 0.0, "s", "how long to wait for late readings; 0 = one interval", low=0, high=86400),
    Setting("agent.warmup_frames", 20, "frames", "frames to learn from before alarms are raised", low=2, high=100000),
    Setting("agent.refresh_frames", 256, "frames", "frames between exact refreshes of the model", low=1, high=100000),
    Setting(
        "agent.half_life_frames",
        20000,
        "frames",
        "age at which a frame counts half in the agent's long memory",
        low=10,
        high=1_000_000_000,
    ),
    Setting(
        "agent.short_half_life_frames",
        1000,
        "frames",
        "the same of its short memory; the two are mixed by how well they foresaw of late",
        low=10,
        high=1_000_000_000,
    ),
    Setting(
        "agent.local_inducing",
        12,
        "",
        "inducing inputs of the agent's private nonlinear part, placed after 256 frames; 0 = none",
        low=0,
        high=100,
    ),
    Setting(
        "agent.layers",
        True,
        "",
        "whether predictions tell what they are made of: last reading, what the fleet knows, what this device does otherwise, "
        "its own pattern; a third more work at 64 channels, a sixth at few, and up to 90 bytes a channel and frame",
    ),
    Setting(
        "agent.model",
        "full",
        "",
        "which parts of the model it works with: all, fewer, or none of the fleet's; docs/model.md tells them apart",
        choices=MODELS,
    ),
    Setting(
        "agent.snapshot_s",
        1800.0,
        "s",
        "how often the agent's state is saved as a whole, if not earlier: before replaying its journal would take 5 s",
        low=1,
        high=86400,
    ),
    Setting(
        "agent.alarm_score",
        8.0,
        "",
        "least score that opens an event: -log10 of how probable so odd a frame is; a stream whose ordinary frames are odder "
        "than the law admits raises it for itself",
        low=1,
        high=300,
    ),
    Setting(
        "agent.clock",
        "live",
        "",
        "whose time a frame has: the reading's if plausible now, the recording's own, or that of arrival",
        choices=_CLOCKS,
    ),
    Setting("agent.health_s", 10.0, "s", _HEALTH, low=1, high=3600),
    Setting("coordinator.round_s", 60.0, "s", "from the start of one round to the next", low=1, high=86400),
    Setting(
        "coordinator.answer_s",
        5.0,
        "s",
        "how long a round waits for answers before it closes with those it has",
        low=0.1,
        high=3600,
    ),
    Setting(
        "coordinator.half_life_rounds",
        10000,
        "rounds",
        "age at which an agent's last answer counts half",
        low=1,
        high=1_000_000_000,
    ),
    Setting(
        "coordinator.tuning",
        "on",
        "",
        "whether the fleet's inducing inputs and lengthscales, where it has any, are learnt from its agents' recent frames: "
        "twice the bytes while that is under way, and one more task a round for an agent",
        choices=("on", "off"),
    ),
    Setting(
        "coordinator.tuning_rounds",
        1,
        "rounds",
        "from one step of that to the next",
        low=1,
        high=10_000,
    ),
    Setting("coordinator.health_s", 10.0, "s", _HEALTH, low=1, high=3600),
    Setting("bridge.topics", "sensors/#", "", "MQTT filters of raw readings to store, separated by commas"),
    Setting("bridge.batch_s", 0.25, "s", "longest time a reading waits to be stored with others", low=0.01, high=60),
    Setting("bridge.batch_rows", 2000, "rows", "most rows that are stored at once", low=1, high=100000),
    Setting(
        "bridge.clock",
        "live",
        "",
        "whose time a reading has: its own if plausible now, the recording's own, or that of arrival",
        choices=_CLOCKS,
    ),
    Setting(
        "bridge.broker",
        "none",
        "",
        "run a broker of our own: none, the first kind found (auto), or the named one",
        choices=("none", "auto", "mosquitto", "nats"),
    ),
    Setting("bridge.port", 0, "", "port of the broker of our own; 0 = a free one", low=0, high=65535),
    Setting("bridge.health_s", 10.0, "s", _HEALTH, low=1, high=3600),
    Setting(
        "store.kind",
        "sqlite",
        "",
        "where history is kept: a file of ours, or a server (InfluxDB; VictoriaMetrics can be written)",
        choices=("sqlite", "influx"),
    ),
    Setting("store.url", "http://127.0.0.1:8086", "", "the InfluxDB server: http://HOST:PORT or https://HOST"),
    Setting("store.database", "fleetgp", "", "database (InfluxDB 1) or bucket (2, 3)"),
    Setting("store.org", "", "", "organisation, where InfluxDB 2 asks for one"),
    Setting("store.username", "", "", "name to log in with; empty = none"),
    Setting("store.password", "", "", "password to log in with; better kept in store.password_file", is_secret=True),
    Setting("store.password_file", "", "", "file whose first line is the password"),
    Setting("store.token", "", "", "token to be let in with (2, 3); better kept in store.token_file", is_secret=True),
    Setting("store.token_file", "", "", "file whose first line is the token"),
    Setting("store.timeout_s", 10.0, "s", "how long the server may take for one request", low=0.1, high=600),
    Setting(
        "store.backlog_mb",
        1000,
        "MB",
        "most that waits on disk for the server, in bridge/backlog.sqlite in data.dir; the oldest goes when it is full",
        low=16,
        high=1_000_000,
    ),
    Setting("store.backlog_days", 30, "days", "longest that anything waits on disk for the server", low=1, high=3650),
    Setting("store.path", "", "", "history file; empty = bridge/history.sqlite in data.dir"),
    Setting("store.raw_days", 90, "days", "how long every reading is kept", low=1, high=36500),
    Setting("store.rollup_days", 1825, "days", "how long one-minute summaries are kept", low=1, high=36500),
    Setting(
        "store.hour_days",
        3650,
        "days",
        "how long one-hour summaries are kept; never shorter than those of a minute",
        low=1,
        high=36500,
    ),
    Setting(
        "store.prediction_days",
        0,
        "days",
        "how long every prediction is kept; 0 = as store.raw_days",
        low=0,
        high=36500,
    ),
    Setting(
        "store.prediction_rollup_days",
        0,
        "days",
        "how long one-minute summaries of predictions are kept; 0 = as store.rollup_days",
        low=0,
        high=36500,
    ),
    Setting(
        "store.health_days",
        0,
        "days",
        "how long every health report of a program is kept; 0 = as store.raw_days",
        low=0,
        high=36500,
    ),
    Setting(
        "store.event_days",
        0,
        "days",
        "how long events are kept; 0 = whatever their age, the newest 100,000 of them",
        low=0,
        high=36500,
    ),
    Setting(
        "store.round_days",
        0,
        "days",
        "how long rounds are kept; 0 = whatever their age, the newest 100,000 of them",
        low=0,
        high=36500,
    ),
    Setting("dashboard.host", "127.0.0.1", "", "address the dashboard listens on; 0.0.0.0 = all of this machine's"),
    Setting("dashboard.port", 8501, "", "port the dashboard listens on", low=0, high=65535),
    Setting(
        "dashboard.refresh_s", 2.0, "s", "how often the dashboard's pages are brought up to date", low=0.5, high=3600
    ),
    Setting("logs.form", "text", "", "log lines as text for people or JSON for machines", choices=("text", "json")),
    Setting("logs.level", "info", "", "least level that is logged", choices=("debug", "info", "warning", "error")),
    Setting("metrics.host", "127.0.0.1", "", "address of the metrics page; 0.0.0.0 = all of this machine's"),
    Setting(
        "metrics.port", 0, "", "port of the metrics page (/metrics, /healthz); 0 = no such page", low=0, high=65535
    ),
)
