"""A broker, a bench of programs and a desk, all gone when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import Bench, Desk, desk_at

from broker_bridge.broker import EmbeddedBroker


@pytest.fixture
def any_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """The broker that a user of this machine gets; for tests that do not depend on which."""
    with EmbeddedBroker.start("auto", tmp_path / "broker") as running:
        yield running


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Programs; against the test's broker where it has one."""
    bench = Bench(tmp_path)
    for name in ("any_broker", "broker"):
        if name in request.fixturenames:
            bench.url = request.getfixturevalue(name).url
    yield bench
    bench.end()


@pytest.fixture
def desk(bench: Bench, tmp_path: Path) -> Iterator[Desk]:
    with desk_at(bench.url, tmp_path) as desk:
        assert desk.session.wait_connected(10.0)
        yield desk
