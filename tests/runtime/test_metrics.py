"""Figures for Prometheus, judged by a parser of the exposition format written here, over a real socket."""

from __future__ import annotations

import http.client
import math
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetgp.errors import ServiceError
from fleetgp.runtime import metrics_page
from fleetgp.runtime.metrics import MAX_SERIES, Registry, resident_megabytes
from fleetgp.runtime.metrics_page import MetricsPage

_SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"')


def parse(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples by name and labels; fails on a line that the format does not allow, or figures without HELP and TYPE."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            assert line.split(" ")[2] not in found, "a figure stands twice"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in {"counter", "gauge"}
            found[name] = {}
        else:
            match = _SAMPLE.fullmatch(line)
            assert match, line
            labels = tuple((name, _unescape(value)) for name, value in _LABEL.findall(match[2] or ""))
            found[match[1]][labels] = float(match[3])
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], text)


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def page(registry: Registry) -> Iterator[MetricsPage]:
    page = MetricsPage(registry, "127.0.0.1", 0)
    yield page
    page.close()


def get(page: MetricsPage, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def test_the_text_form_letter_for_letter(registry: Registry) -> None:
    registry.counter("frames_total", "frames seen").add(3)
    registry.gauge("depth", "a \\ b\nc", ("queue",)).set(0.5, queue='in"\\\n')
    assert registry.exposition() == (
        "# HELP fleetgp_frames_total frames seen\n"
        "# TYPE fleetgp_frames_total counter\n"
        "fleetgp_frames_total 3\n"
        "# HELP fleetgp_depth a \\\\ b\\nc\n"
        "# TYPE fleetgp_depth gauge\n"
        'fleetgp_depth{queue="in\\"\\\\\\n"} 0.5\n'
    )


def test_values_and_labels_come_through_a_parser_unchanged(registry: Registry) -> None:
    gauge = registry.gauge("x", "x", ("name", "unit"))
    values = [0.0, -0.1, 1e300, 2.0**60, 1 / 3, math.inf, -math.inf, 12345678901234.0]
    names = ["", "a b", 'q"', "\\n", "\n", "°C", "{}", ","]
    for name, value in zip(names, values, strict=True):
        gauge.set(value, name=name, unit="s")
    seen = parse(registry.exposition())["fleetgp_x"]
    assert seen == {(("name", name), ("unit", "s")): value for name, value in zip(names, values, strict=True)}
    gauge.set(math.nan, name="", unit="s")
    assert math.isnan(parse(registry.exposition())["fleetgp_x"][("name", ""), ("unit", "s")])


def test_counters_start_at_zero_and_only_go_up(registry: Registry) -> None:
    counter = registry.counter("events_total", "events")
    assert parse(registry.exposition()) == {"fleetgp_events_total": {(): 0.0}}
    counter.add()
    registry.counter("events_total", "events").add(2)
    assert parse(registry.exposition()) == {"fleetgp_events_total": {(): 3.0}}
    for amount in (-1, math.nan):
        with pytest.raises(ValueError, match="only goes up"):
            counter.add(amount)


def test_what_cannot_be_a_figure(registry: Registry) -> None:
    registry.counter("a", "a", ("x",))
    with pytest.raises(ValueError, match="already a counter"):
        registry.gauge("a", "a", ("x",))
    with pytest.raises(ValueError, match="already a counter"):
        registry.counter("a", "a", ("y",))
    with pytest.raises(ValueError, match="letters, digits"):
        registry.counter("a-b", "a")
    with pytest.raises(ValueError, match="has the labels"):
        registry.counter("a", "a", ("x",)).add(y="1")


def test_made_up_labels_cannot_fill_the_memory(registry: Registry) -> None:
    counter = registry.counter("rejected_total", "rejected", ("topic",))
    for number in range(5 * MAX_SERIES):
        counter.add(topic=f"topic {number}")
    seen = parse(registry.exposition())["fleetgp_rejected_total"]
    assert len(seen) == MAX_SERIES + 1
    assert seen[(("topic", "other"),)] == 4 * MAX_SERIES
    assert sum(seen.values()) == 5 * MAX_SERIES


def test_watched_figures_are_asked_anew_each_time(registry: Registry) -> None:
    figures = {"inbox_depth": 1.0, "odd name!": 2.0}
    registry.gauge("rss_mb", "memory").set(30)
    registry.watch("gauge", "figures of the session", lambda: figures)
    registry.watch("counter", "hidden by the first of that name", lambda: {"rss_mb": 1.0, "inbox_depth": 9.0})
    assert parse(registry.exposition()) == {
        "fleetgp_rss_mb": {(): 30.0},
        "fleetgp_inbox_depth": {(): 1.0},
        "fleetgp_odd_name_": {(): 2.0},
    }
    figures["inbox_depth"] = 5.0
    assert parse(registry.exposition())["fleetgp_inbox_depth"] == {(): 5.0}


def test_many_threads_count_right(registry: Registry) -> None:
    counter = registry.counter("n_total", "n", ("thread",))
    threads = [threading.Thread(target=lambda: [counter.add(thread="all") for _ in range(5000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert counter.samples() == [(("all",), 20000.0)]


def test_the_page_shows_the_figures(registry: Registry, page: MetricsPage) -> None:
    registry.gauge("temperature", "°C").set(20.5)
    status, content_type, text = get(page, "/metrics?x=1")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert text == registry.exposition()
    assert get(page, "/")[0] == 404


def test_health_says_what_is_wrong(registry: Registry) -> None:
    trouble = [""]
    page = MetricsPage(registry, "127.0.0.1", 0, trouble=lambda: trouble[0])
    assert get(page, "/healthz")[::2] == (200, "ok\n")
    trouble[0] = "no broker for 40 s"
    assert get(page, "/healthz")[::2] == (503, "no broker for 40 s\n")
    page.close()
    with pytest.raises(OSError, match="refused"):
        get(page, "/healthz")


def test_a_port_in_use_is_said_in_plain_words(registry: Registry, page: MetricsPage) -> None:
    with pytest.raises(ServiceError, match=rf"127\.0\.0\.1:{page.port}: Address already in use; .*metrics\.port \(0"):
        MetricsPage(registry, "127.0.0.1", page.port)


def test_a_host_that_is_not_ours_is_said_in_plain_words(registry: Registry) -> None:
    with pytest.raises(ServiceError, match=r"cannot listen on 192\.0\.2\.1:0: .*metrics\.host"):
        MetricsPage(registry, "192.0.2.1", 0)


def test_it_listens_where_it_was_told_only(page: MetricsPage) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.2", page.port))  # free: the page is not on all addresses


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\xff\x00\xfe\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
    ],
)
def test_nonsense_gets_no_figures_and_does_no_harm(page: MetricsPage, request_bytes: bytes) -> None:
    with socket.create_connection(("127.0.0.1", page.port), timeout=10) as client:
        client.sendall(request_bytes)
        client.shutdown(socket.SHUT_WR)
        answer = client.recv(10000)
    assert b" 200 " not in answer
    assert get(page, "/healthz")[0] == 200


@pytest.mark.parametrize("drip", [b"", b"x"])
def test_a_client_that_stalls_is_cut_and_the_next_one_served(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, drip: bytes
) -> None:
    """One that says nothing, and one that keeps each single read alive, meet the same deadline."""
    monkeypatch.setattr(metrics_page, "DEADLINE_S", 0.3)
    page = MetricsPage(registry, "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", page.port), timeout=10) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        stop = threading.Event()

        def keep_alive() -> None:
            while drip and not stop.wait(0.05):
                try:
                    client.sendall(drip)
                except OSError:
                    return

        feeder = threading.Thread(target=keep_alive)
        feeder.start()
        assert get(page, "/healthz")[0] == 200
        stop.set()
        feeder.join(10)
    page.close()


def test_memory_is_what_the_system_says() -> None:
    """Against the kernel's other account of it, in kB."""
    resident_kb = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert resident_kb
    assert resident_megabytes() == pytest.approx(int(resident_kb[1]) / 1024, rel=0.2)


def test_an_agent_pays_little_for_it() -> None:
    """Settings, logs, metrics and page together cost less than 6 MB on top of the agent's diet."""
    script = (
        "import numpy, msgspec, paho.mqtt.client\n"
        "rss = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096 / 2**20\n"
        "before = rss()\n"
        "import fleetgp.runtime.settings, fleetgp.runtime.logs, fleetgp.runtime.metrics_page, fleetgp.runtime.journal\n"
        "import fleetgp.runtime.snapshot, fleetgp.runtime.lock, fleetgp.runtime.arguments\n"
        "print(rss() - before)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert float(run.stdout) < 6.0, run.stdout
