"""``fleetgp doctor``: what is wrong on this machine, and what to do about it, in plain words."""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from paho.mqtt.client import topic_matches_sub

from broker_bridge.broker import is_available
from broker_bridge.doctor_influx import examine_backlog, examine_server
from broker_bridge.finding import Finding
from fleetgp.defaults import CHOSEN
from fleetgp.errors import ConfigError, FleetError, StorageError
from fleetgp.payloads.content import EARLIEST_MS
from fleetgp.runtime.arguments import from_arguments
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.logs import Log
from fleetgp.runtime.mqtt import Link, Outgoing, Session, SessionConfig
from fleetgp.runtime.program import broker_link
from fleetgp.runtime.settings import Settings
from fleetgp.store.open import history_path, is_influx, location, open_reader

CONNECT_S = 5.0
STEP_S = 0.25
LOOPBACK = ("127.0.0.1", "localhost")
LOW_DISK = 500_000_000
PACKAGES = ("numpy", "paho-mqtt", "msgspec", "scipy", "streamlit", "torch", "influxdb-client")


class _Said:
    """Collects what a session says while it tries to connect."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> int:
        self.lines.append(text)
        return len(text)

    @property
    def why(self) -> str:
        """The first reason given for not being connected, "" where none was."""
        reasons = (json.loads(line)["fields"].get("why", "") for line in self.lines)
        return next(filter(None, reasons), "")

    def flush(self) -> None:
        return


def examine(args: Namespace, environment: Mapping[str, str]) -> list[Finding]:
    """All findings; checks that need sound settings are left out where they are not."""
    findings = list(_versions())
    findings.append(_clock())
    try:
        settings = from_arguments(args, environment)
    except ConfigError as err:
        return [Finding("settings", "fault", str(err), "mend this setting; docs/settings.md lists all"), *findings]
    changed = [f"{name}={value} ({source})" for name, value, source in settings.rows() if source != "default"]
    findings.insert(0, Finding("settings", "ok", "; ".join(changed) or "all defaults"))
    findings += _streams(settings)
    findings.append(_folder(settings))
    findings.append(_broker(settings))
    findings += _store(settings)
    return findings


def show(findings: list[Finding], file: str | None) -> int:
    """Print the findings; 0 when none is a fault, else 1."""
    if file:
        text = json.dumps([finding._asdict() for finding in findings], indent=2)
        if file == "-":
            print(text)
        else:
            try:
                Path(file).write_text(text + "\n")
            except OSError as err:
                raise ConfigError("--json", f"cannot write {file}: {err.strerror or err}") from err
    if file != "-":
        for finding in findings:
            print(f"{finding.verdict:<8} {finding.check:<10} {finding.seen}")
            if finding.advice:
                print(f"{'':<19} -> {finding.advice}")
    return int(any(finding.verdict == "fault" for finding in findings))


def _versions() -> Iterator[Finding]:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    python = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("versions", "ok", f"fleetgp {version('fleetgp')}, Python {python}, {', '.join(found)}")


def _clock() -> Finding:
    now_ms = SystemClock().now_ms()
    seen = datetime.fromtimestamp(now_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now_ms < EARLIEST_MS:
        return Finding("clock", "fault", seen, "this machine's clock is not set; wait for NTP or set it by hand")
    return Finding("clock", "ok", seen)


def _folder(settings: Settings) -> Finding:
    folder = Path(settings.text("data.dir")).expanduser()
    probe = folder / f".probe-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x" * 4096)
        probe.unlink()
        free = shutil.disk_usage(folder).free
    except OSError as err:
        advice = "choose another data.dir, or give this user the right to write there"
        return Finding("folder", "fault", f"{folder.resolve()}: {err.strerror or err}", advice)
    seen = f"{folder.resolve()}, {free / 1e9:.1f} GB free"
    if free < LOW_DISK:
        return Finding("folder", "warning", seen, "make room, or choose a data.dir on another disk")
    return Finding("folder", "ok", seen)


def _broker(settings: Settings) -> Finding:
    said = _Said()
    log = Log("doctor", form="json", stream=said)  # type: ignore[arg-type]
    topic = f"fleetgp/{settings.text('fleet')}/doctor/{uuid.uuid4().hex[:8]}"
    try:
        link = broker_link(settings)
        config = SessionConfig(client_id=f"fleetgp-doctor-{uuid.uuid4().hex[:8]}", subscriptions=((topic, 1),))
        session = Session(link, config, clock=SystemClock(), log=log)
    except FleetError as err:
        return Finding("broker", "fault", str(err), "mend the [mqtt] settings")
    session.start()
    try:
        if not _connects(session, said):
            return _unreachable(said.why or f"{link.host}:{link.port} does not answer within {CONNECT_S:.0f} s", link)
        session.publish(Outgoing(topic, b"there and back", 1))
        if not session.receive(1, CONNECT_S):
            advice = f"the broker accepts us but does not deliver; let this user read and write fleetgp/{settings.text('fleet')}/#"
            return Finding("broker", "fault", f"{link.host}:{link.port}: a message did not come back", advice)
        return Finding("broker", "ok", f"{link.host}:{link.port}, a message came back")
    finally:
        session.stop(timeout_s=1.0)


def _connects(session: Session, said: _Said) -> bool:
    """Whether it does in time. Once a reason was given, a moment more for another attempt is enough."""
    steps_left = round(CONNECT_S / STEP_S)
    while steps_left > 0 and not session.wait_connected(STEP_S):
        steps_left = min(steps_left, 3) - 1 if said.why else steps_left - 1
    return session.is_connected


def _unreachable(why: str, link: Link) -> Finding:
    """why: what a session says, a sentence with the advice behind a semicolon."""
    seen, _, advice = why.partition("; ")
    here = " and ".join(kind for kind in ("mosquitto", "nats") if is_available(kind))
    if here and seen.startswith("nothing listens") and link.host in LOOPBACK:
        advice += f" This machine has {here}: 'fleetgp bridge --own-broker --set bridge.port={link.port}' runs it there"
    return Finding("broker", "fault", seen, advice or "start the broker, or set mqtt.url to where it is")


def _streams(settings: Settings) -> Iterator[Finding]:
    """What an agent of these settings would read, where they describe one."""
    if settings.streams is None:
        return
    said, default = settings.streams, settings.text("agent.topic")
    wanted = {item.name: item.topic or default for item in said.inputs}
    homeless = [name for name, topic in wanted.items() if not topic]
    filters = [part.strip() for part in settings.text("bridge.topics").split(",")]
    unstored = sorted({t for t in wanted.values() if t and not any(topic_matches_sub(f, t) for f in filters)})
    every = "as often as they come" if said.interval_s is None else f"every {said.interval_s:g} s"
    seen = f"{len(said.channels)} channels, {len(said.covariates)} covariates, {every}"
    if homeless:
        yield Finding(
            "channels", "fault", f"no topic for {', '.join(homeless)}", "set agent.topic, or a topic for each"
        )
    elif not settings.text("agent.id"):
        yield Finding(
            "channels", "fault", f"{seen}, but agent.id is not set", 'give the agent a name, e.g. id = "pump-1"'
        )
    else:
        yield Finding("channels", "ok", f"{seen}, from {', '.join(sorted(set(wanted.values())))}")
    if unstored:
        advice = "add them to bridge.topics, or the dashboard cannot show the readings"
        yield Finding("topics", "warning", f"the bridge does not store {', '.join(unstored)}", advice)


def _store(settings: Settings) -> Iterator[Finding]:
    if is_influx(settings):
        try:
            findings = [*examine_server(settings), *examine_backlog(settings)]
        except ConfigError as err:
            findings = [Finding("influx", "fault", str(err), "mend the [store] settings")]
        yield from findings
        if any((one.check, one.verdict) in (("influx", "fault"), ("database", "warning")) for one in findings):
            return
    elif not history_path(settings).exists():
        yield Finding("store", "warning", f"no history at {location(settings)} yet", "start 'fleetgp bridge'")
        return
    try:
        reader = open_reader(settings)
        info, healths = reader.info(), reader.healths()
        notes = {
            status.name: status.note for status in reader.statuses() if status.is_online and status.role == "agent"
        }
        reader.close()
    except StorageError as err:
        yield Finding("store", "fault", str(err), "see which file store.path and data.dir name")
        return
    yield Finding("store", "ok", f"{info.location}: {info.rows} rows of {info.series} series, {info.megabytes:.1f} MB")
    now_ms = SystemClock().now_ms()
    for health in healths:
        age_s = (now_ms - health.at_ms) / 1000
        dropped = ", ".join(f"{reason} {number}" for reason, number in sorted(health.dropped.items()))
        seen = f"{health.role}, last heard {age_s:.0f} s ago" + (f"; counted: {dropped}" if dropped else "")
        note = notes.get(health.name, "")
        if health.note:
            yield Finding(health.name, "fault", f"{seen}; {health.note}", "see the program's log")
        elif age_s > 120:
            yield Finding(
                health.name, "warning", seen, f"start 'fleetgp {health.role}' again, or forget it if it was retired"
            )
        elif note and not note.startswith(CHOSEN):
            yield Finding(
                health.name, "warning", f"{seen}; {note}", "see its [channels]: topic, field, and what is sent there"
            )
        else:
            yield Finding(health.name, "ok", seen)
