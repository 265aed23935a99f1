"""From the ``devices`` command's arguments to streams on a broker."""

from __future__ import annotations

import os
import tempfile
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from fleetgp.errors import ConfigError, ServiceError
from fleetgp.runtime.arguments import from_arguments
from fleetgp.runtime.clock import SystemClock
from fleetgp.runtime.logs import make_log
from fleetgp.runtime.mqtt import Session, SessionConfig
from fleetgp.runtime.outbox import Outbox
from fleetgp.runtime.program import broker_link, stop_on_signals
from fleetgp.schema import check_id
from simulator.choosing import readable
from simulator.devices import Device, Fault
from simulator.feeder import Due, Feeder, recorded, simulated
from simulator.presses import Press

SEED = 20260101
CONNECT_S = 5.0
STEP_S = 0.1
PART_S = 1.0


def run_devices(args: Namespace) -> int:
    """0 when the broker took all, or it was stopped. Raises FleetError in plain words where it cannot run."""
    settings = from_arguments(args, os.environ)
    clock = SystemClock()
    stop = threading.Event()
    stop_on_signals(stop)
    log = make_log("devices", settings.text("logs.form"), settings.text("logs.level"))
    folder = Path(settings.text("data.dir")).expanduser() / "devices"
    report = args.report or folder / "sent.json"
    try:
        for needed in (folder, report.parent):
            needed.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise ServiceError(f"cannot make the folder {err.filename}: {err.strerror}; choose another data.dir") from err
    link = broker_link(settings)
    with tempfile.TemporaryDirectory(prefix="outbox-", dir=folder) as scratch:
        outbox = Outbox(Path(scratch) / "outbox.sqlite", clock=clock)
        config = SessionConfig(client_id=f"fleetgp-devices-{os.getpid()}")
        session = Session(link, config, clock=clock, outbox=outbox, log=log)
        session.start()
        connect_by_s = clock.monotonic_s() + CONNECT_S
        try:
            # what is said before the connection stands would arrive behind what is said after
            while not stop.is_set() and clock.monotonic_s() < connect_by_s and not session.wait_connected(STEP_S):
                continue
            feeder = Feeder(session, clock, report)
            dues = _recorded(args) if args.recording else _simulated(args, clock.now_ms())
            feeder.run(dues, args.seconds, stop)
        finally:
            session.stop(timeout_s=PART_S)
            outbox.close()
    sent = sum(feeder.sent.values()) - feeder.unsent
    if feeder.unsent:
        log.warning("devices_done", sent=sent, unsent=feeder.unsent, why="the broker did not take them in time")
    else:
        log.info("devices_done", sent=sent, most_late_s=round(feeder.late_s, 3))
    return 1 if feeder.unsent and not stop.is_set() else 0


def _recorded(args: Namespace) -> Iterator[Due]:
    found, described = readable(args.recording, args.spec)
    streams = {stream.name: stream.read(described) for stream in found}
    return recorded(streams, [item.name for item in described.inputs], args.speed)


def _simulated(args: Namespace, start_ms: int) -> Iterator[Due]:
    for name in args.names:
        check_id(name, "--names")
    if len(set(args.names)) < len(args.names):
        raise ConfigError("--names", "a name stands twice; every device needs its own")
    faults = dict(_indexed(text, len(args.names), "--fault") for text in args.fault)
    joins = dict(_indexed(text, len(args.names), "--join") for text in args.join)
    kind = Press if args.kind == "press" else Device
    fleet = [
        kind(name, SEED + index, Fault(round(faults[index] / args.interval)) if index in faults else None)
        for index, name in enumerate(args.names)
    ]
    # devices do not tick together: each begins at its own moment of the interval
    starts = [joins.get(index, 0.0) + args.interval * index / len(fleet) for index in range(len(fleet))]
    return simulated(fleet, starts, args.interval, start_ms)


def _indexed(text: str, count: int, flag: str) -> tuple[int, float]:
    index, at, seconds = text.partition("@")
    if not (at and index.isdecimal() and int(index) < count):
        raise ConfigError(flag, f"{text!r}: expected INDEX@SECONDS with an index from 0 to {count - 1}")
    try:
        return int(index), float(seconds)
    except ValueError:
        raise ConfigError(flag, f"{text!r}: {seconds!r} is not a number of seconds") from None
