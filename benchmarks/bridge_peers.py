"""The others in the bridge's benchmark: who fills a broker's queue, who publishes at a pace, who only counts.

The counting subscriber and the bare publisher are paho as its manual shows it; each runs as a process of its own.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from fleetgp.errors import ServiceError

HOST = "127.0.0.1"
DEVICES = 20
CHANNELS = 8
TOPIC = "sensors/bench-"
FILTER = "sensors/#"
STEP_MS = 1_000  # between two readings of a device
ANSWER_S = 10.0
WAIT_S = 120.0  # for a process that was told to go
_CONNACK_BYTES, _PUBACK_BYTES = 4, 4
WINDOW = 1_000  # messages that a bare publisher has under way, as the replay has
_CHUNK = 500  # messages written at once


class Said(NamedTuple):
    """A message on its way: topic and payload."""

    topic: str
    payload: bytes


def start_ms(number: int) -> int:
    """A start such that the last of so many messages is of now."""
    return time.time_ns() // 1_000_000 - number // DEVICES * STEP_MS


def messages(number: int, begin_ms: int) -> Iterator[Said]:
    """Readings of DEVICES devices in turn, CHANNELS channels each, as ``fleetgp devices`` sends them."""
    for index in range(number):
        device, tick = index % DEVICES, index // DEVICES
        yield Said(f"{TOPIC}{device}", reading(index, tick, begin_ms + tick * STEP_MS))


def reading(number: int, tick: int, at_ms: int) -> bytes:
    """One payload; its values are fixed by the number."""
    values = {
        f"channel_{c}": round(20.0 + c + (number * 7919 + c * 104_729) % 10_007 / 1_000, 4) for c in range(CHANNELS)
    }
    return json.dumps({"time": at_ms, "seq": tick, **values}).encode()


def pour(port: int, said: Iterator[Said]) -> int:
    """Publish at QoS 1 as fast as the broker takes it, and return how many it has confirmed.

    Written by hand: the filling of a queue is no part of what is measured, and paho would take most of the time.
    """
    with socket.create_connection((HOST, port), timeout=ANSWER_S) as sock:
        sock.sendall(b"\x10\x16\x00\x04MQTT\x04\x02\x00\x3c\x00\x0abench-pour")
        _read(sock, _CONNACK_BYTES)
        sent, chunk = 0, bytearray()
        for message in said:
            sent += 1
            chunk += publish_packet(message, sent)
            if sent % _CHUNK == 0:
                sock.sendall(chunk)
                _read(sock, _CHUNK * _PUBACK_BYTES)
                chunk.clear()
        sock.sendall(chunk)
        _read(sock, sent % _CHUNK * _PUBACK_BYTES)
        sock.sendall(b"\xe0\x00")
        return sent


def publish_packet(message: Said, number: int) -> bytes:
    topic = message.topic.encode()
    body = len(topic).to_bytes(2) + topic + ((number - 1) % 65_535 + 1).to_bytes(2) + message.payload
    size, length = len(body), bytearray()
    while size > 127:
        length.append(size % 128 | 128)
        size //= 128
    length.append(size)
    return b"\x32" + bytes(length) + body


def _read(sock: socket.socket, size: int) -> None:
    while size:
        got = len(sock.recv(size))
        if not got:
            raise ServiceError("the broker closed the connection of the benchmark's publisher")
        size -= got


def client(name: str) -> paho.Client:
    return paho.Client(CallbackAPIVersion.VERSION2, client_id=name)


def subscribe(port: int, name: str, take: Callable[[paho.Client], None], reply: Connection) -> None:
    """paho as its manual shows it, until ``take``, called for every message, disconnects; reply: "ready" when subscribed."""
    one = client(name)

    def on_connect(*_: Any) -> None:
        one.subscribe(FILTER, 1)

    one.on_connect = on_connect
    one.on_subscribe = lambda *_: reply.send("ready")
    one.on_message = lambda *_: take(one)
    one.connect(HOST, port)
    one.loop_forever()


def count(port: int, expected: int, reply: Connection) -> None:
    """Only count; reply, after "ready": times (monotonic s) of the first and the last message."""
    seen, first_s, last_s = 0, 0.0, 0.0

    def take(one: paho.Client) -> None:
        nonlocal seen, first_s, last_s
        seen += 1
        if seen == 1:
            first_s = time.monotonic()
        elif seen == expected:
            last_s = time.monotonic()
            one.disconnect()

    subscribe(port, "bench-count", take, reply)
    reply.send((first_s, last_s))


def arrivals(port: int, expected: int, reply: Connection) -> None:
    """Reply, after "ready": the time (monotonic s) of every message."""
    times: list[float] = []

    def take(one: paho.Client) -> None:
        times.append(time.monotonic())
        if len(times) == expected:
            one.disconnect()

    subscribe(port, "bench-arrivals", take, reply)
    reply.send(times)


def publish_paced(port: int, number: int, per_s: float, reply: Connection) -> None:
    """Publish at QoS 1 at an even pace; reply: the time (monotonic s) at which each message was handed over."""
    one = client("bench-paced")
    one.connect(HOST, port)
    one.loop_start()
    begin_s, times = time.monotonic() + 0.5, []
    for index, said in enumerate(messages(number, start_ms(number))):
        wait_s = begin_s + index / per_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        times.append(time.monotonic())
        info = one.publish(said.topic, said.payload, 1)
    info.wait_for_publish(ANSWER_S)
    one.disconnect()
    one.loop_stop()
    reply.send(times)


def sleep_paced(number: int, per_s: float, reply: Connection) -> None:
    """Only wait for each moment of an even pace; reply: seconds by which each was missed."""
    begin_s, late_s = time.monotonic(), []
    for index in range(number):
        due_s = begin_s + index / per_s
        time.sleep(max(0.0, due_s - time.monotonic()))
        late_s.append(time.monotonic() - due_s)
    reply.send(late_s)


def publish_bare(port: int, number: int, reply: Connection) -> None:
    """Publish at QoS 1 as fast as paho's threaded loop does; reply: seconds from the first to the last confirmation."""
    one = client("bench-bare")
    one.max_inflight_messages_set(WINDOW)
    said, confirmed, done = list(messages(number, start_ms(number))), 0, threading.Event()

    def on_publish(*_: Any) -> None:
        nonlocal confirmed
        confirmed += 1
        if confirmed == number:
            done.set()

    one.on_publish = on_publish
    one.connect(HOST, port)
    one.loop_start()
    begin_s = time.monotonic()
    for message in said:
        one.publish(message.topic, message.payload, 1)
    done.wait(WAIT_S)
    seconds = time.monotonic() - begin_s
    one.disconnect()
    one.loop_stop()
    reply.send(seconds)


class Beside(NamedTuple):
    """A process beside ours. reply: read its answers from it."""

    pid: int
    reply: Connection


@contextmanager
def beside(work: Callable[..., None], *arguments: object) -> Iterator[Beside]:
    """Run one of the functions above as a process of its own."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Beside(process.pid or 0, ours)
    finally:
        process.join(ANSWER_S)
        if process.is_alive():
            process.kill()
            process.join()


def reply_of(one: Beside, seconds: float = WAIT_S) -> Any:
    """Its next answer. Raises ServiceError where none comes in time."""
    try:
        if one.reply.poll(seconds):
            return one.reply.recv()
    except EOFError:
        pass
    raise ServiceError(f"a process of the benchmark gave no answer within {seconds:.0f} s")
