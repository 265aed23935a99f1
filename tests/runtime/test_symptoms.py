from __future__ import annotations

import io

import pytest

from fleetgp.runtime.clock import FakeClock
from fleetgp.runtime.logs import Log
from fleetgp.runtime.symptoms import GIVE_UP, REPEAT_S, Complaints, Echo, Rival


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def echo(clock: FakeClock) -> Echo:
    return Echo("health", 10.0, clock)


def test_silence_counts_only_from_a_heartbeat_that_was_sent(echo: Echo, clock: FakeClock) -> None:
    clock.advance(1000.0)
    echo.sent("something else")
    clock.advance(1000.0)
    assert not echo.is_lost
    echo.sent("health")
    clock.advance(30.0)
    assert not echo.is_lost
    clock.advance(0.1)
    assert echo.is_lost


def test_more_heartbeats_do_not_put_the_deadline_off_but_hearing_does(echo: Echo, clock: FakeClock) -> None:
    for _ in range(4):
        echo.sent("health")
        clock.advance(10.0)
    assert echo.is_lost
    echo.heard()
    assert not echo.is_lost


def test_a_topic_that_never_comes_back_is_given_up(echo: Echo, clock: FakeClock) -> None:
    for _ in range(GIVE_UP):
        echo.sent("health")
        clock.advance(31.0)
        assert echo.is_lost
        echo.count_loss()
        echo.begin()
    echo.sent("health")
    clock.advance(31.0)
    assert not echo.is_lost
    echo.heard()
    echo.sent("health")
    clock.advance(31.0)
    assert echo.is_lost


def test_a_rival_is_told_by_the_broker_or_by_three_short_lives_in_a_row() -> None:
    assert Rival().is_there(1000.0, is_told=True)
    rival = Rival()
    assert [rival.is_there(lived_s, is_told=False) for lived_s in (1, 1, 6, 1, 1, 1)] == [False] * 5 + [True]
    assert [rival.is_there(1, is_told=False) for _ in range(2)] == [False, False]
    rival.excuse()
    assert not rival.is_there(1, is_told=False)


def test_a_lasting_trouble_is_said_once_and_then_rarely(clock: FakeClock) -> None:
    stream = io.StringIO()
    complaints = Complaints(Log("test", stream=stream, clock=clock), clock)
    for _ in range(100):
        complaints.say("no broker")
        clock.advance(1.0)
    assert stream.getvalue().count("no broker") == 1
    clock.advance(REPEAT_S)
    complaints.say("no broker")
    complaints.say("wrong password")
    complaints.relief()
    complaints.say("wrong password")
    assert stream.getvalue().count("no broker") == 2
    assert stream.getvalue().count("wrong password") == 2
