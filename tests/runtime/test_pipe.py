"""The buffered socket, over a real connection on the loopback address."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from fleetgp.runtime.pipe import Pipe


@pytest.fixture
def ends() -> Iterator[tuple[Pipe, socket.socket]]:
    """A pipe, and the other side's plain socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    pipe = Pipe(near)
    pipe.setblocking(False)
    far.settimeout(10.0)
    with far:
        yield pipe, far
    pipe.close()


def test_what_the_socket_does_not_take_waits_and_goes_in_order(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, far = ends
    words = b"".join(b"%08d" % number for number in range(1_500_000))
    for at in range(0, len(words), 80_000):
        assert pipe.send(words[at : at + 80_000]) == len(words[at : at + 80_000])
    pipe.flush()
    assert pipe.has_unsent  # 12 MB are more than the system keeps for a reader that does not read
    came = bytearray()
    while len(came) < len(words):
        came += far.recv(1 << 20)
        pipe.flush()
    assert came == words
    assert not pipe.has_unsent


def test_a_word_from_another_thread_wakes_who_waits(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, far = ends
    thread = threading.Thread(target=lambda: [pipe.say(b"a"), pipe.say(b"b")])
    thread.start()
    heard, _, _ = select.select([pipe, pipe.bell], [], [], 10.0)
    thread.join()
    assert heard == [pipe.bell]
    pipe.hush()
    assert select.select([pipe, pipe.bell], [], [], 0.0)[0] == []  # one ring for both
    pipe.flush()
    assert far.recv(10) == b"ab"


def test_paho_reads_what_it_is_given_and_nothing_else(
    ends: tuple[Pipe, socket.socket], eventually: Callable[..., None]
) -> None:
    pipe, far = ends
    assert pipe.read() is None
    far.sendall(b"from the wire")
    came: list[bytes | None] = []
    eventually(lambda: came.append(pipe.read()) or came[-1])
    assert came[-1] == b"from the wire"
    with pytest.raises(BlockingIOError):
        pipe.recv(1)
    pipe.give(b"abc")
    assert (pipe.recv(2), pipe.recv(2)) == (b"ab", b"c")
    far.close()
    eventually(lambda: pipe.read() == b"")
    assert pipe.recv(1) == b""  # how paho learns that the other side has closed


def test_last_words_are_sent_before_the_end(ends: tuple[Pipe, socket.socket]) -> None:
    pipe, far = ends
    pipe.say(b"goodbye")
    pipe.finish(1.0)
    pipe.close()
    pipe.close()
    pipe.say(b"too late")
    assert far.recv(100) == b"goodbye"
    assert far.recv(100) == b""


def test_what_is_said_in_a_hurry_goes_without_the_one_who_waits(ends: tuple[Pipe, socket.socket]) -> None:
    """The bell has rung all the same, for what was sent is to be confirmed."""
    pipe, other = ends
    other.settimeout(5.0)
    pipe.say(b"now")
    pipe.hurry()
    assert other.recv(10) == b"now"
    assert not pipe.has_unsent
    assert select.select([pipe.bell], [], [], 0.0)[0] == [pipe.bell]
