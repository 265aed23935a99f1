"""Streams at their own pace: how soon a reading can be queried, how punctual a replay is, how fast one can be."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import bridge_drain as drain
from benchmarks import bridge_peers as peers
from benchmarks.bridge_broker import broker, url_of
from fleetgp.errors import ServiceError
from fleetgp.recording.mcap import McapWriter
from fleetgp.recording.message import Message

POLL_S = 0.004


def p99_ms(delays_s: Iterable[float]) -> float:
    return 1000.0 * float(np.percentile(list(delays_s), 99))


def delays_s(sent_s: Sequence[float], seen: Sequence[drain.Point]) -> list[float]:
    """From the sending of each message to the first point that has so many."""
    counts = [point.done for point in seen]
    return [seen[bisect_left(counts, number)].at_s - at_s for number, at_s in enumerate(sent_s, start=1)]


def lateness_s(arrived_s: Sequence[float], offsets_s: Sequence[float]) -> list[float]:
    """How long after its moment each message came; the moments are those of the most punctual one."""
    late = np.array(arrived_s) - np.array(offsets_s)
    return list(late - late.min())


def queryable_ms(folder: Path, number: int, per_s: float) -> float:
    """99 of 100 messages can be queried so soon after they were published."""
    with broker(folder) as port, drain.Bridge(folder, url_of(port)) as bridge:
        bridge.start()
        with peers.beside(peers.publish_paced, port, number, per_s) as one:
            seen = drain.watch(bridge.rows, number, bridge.check, POLL_S)
            return p99_ms(delays_s(peers.reply_of(one), seen))


def bare_per_s(folder: Path, number: int) -> float:
    with broker(folder) as port, peers.beside(peers.publish_bare, port, number) as one:
        return number / float(peers.reply_of(one))


def replay_per_s(folder: Path, number: int) -> float:
    """Messages a second from the first to the last confirmation, as the replay reports them."""
    path = write_recording(folder / "recorded.mcap", number, 1000.0)
    with broker(folder) as port:
        report = replay(folder, path, url_of(port), "max")
    if report["sent"] != number or report["unconfirmed"]:
        raise ServiceError(f"the replay sent {report['sent']} of {number}, {report['unconfirmed']} unconfirmed")
    return number / float(report["seconds"])


class Late(NamedTuple):
    """What 99 of 100 moments are missed by at most, ms. own: as the replay says; heard: at a subscriber; bare: by a process
    that only waits for the same moments beside it, which is what the machine itself is late."""

    own: float
    heard: float
    bare: float


def replay_late_ms(folder: Path, number: int, per_s: float) -> Late:
    """Of a replay at speed 1."""
    path = write_recording(folder / "recorded.mcap", number, per_s)
    with broker(folder) as port, peers.beside(peers.arrivals, port, number) as one:
        peers.reply_of(one)
        with peers.beside(peers.sleep_paced, number, per_s) as sleeper:
            report = replay(folder, path, url_of(port), "1")
            arrived_s, bare_s = peers.reply_of(one), peers.reply_of(sleeper)
    heard_s = lateness_s(arrived_s, [index / per_s for index in range(number)])
    return Late(float(report["late"]["p99_ms"]), p99_ms(heard_s), p99_ms(bare_s))


def write_recording(path: Path, number: int, per_s: float) -> Path:
    begin_ns = time.time_ns()
    with McapWriter(path, {}) as writer:
        for index, said in enumerate(peers.messages(number, peers.start_ms(number))):
            writer.write(Message(said.topic, said.payload, begin_ns + round(1e9 * index / per_s), qos=1))
    return path


def replay(folder: Path, path: Path, url: str, speed: str) -> dict[str, Any]:
    """Run ``fleetgp replay`` to its end; its report."""
    told = folder / "replay.json"
    program = drain.Program(
        "replay", folder, ["replay", str(path), "--broker", url, "--speed", speed, "--json", str(told)]
    )
    program.start()
    process = program.children.running["replay"]
    process.wait(peers.WAIT_S)
    result: dict[str, Any] = json.loads(told.read_text())
    return result
