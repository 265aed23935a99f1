"""Before the brain: what is enough, what is kept and restored, and whose choice is taken. Time is an argument."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge_agent.choice import ChoiceFiles
from edge_agent.choosing import (
    DEADLINE_S,
    ENOUGH,
    LEAST,
    MOST_KEPT,
    Kept,
    by_itself,
    from_fleet,
    is_enough,
    kept,
    progress,
    remembered,
    samples,
    unheard,
)
from edge_agent.frames import Sample
from fleetgp.defaults import Choice
from fleetgp.errors import ConfigError
from fleetgp.runtime.logs import Log
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wanted import Wanted

SAID = Wanted(
    channels=(Channel(name="flow", topic="t/flow"), Channel(name="dust")), covariates=(Covariate(name="target"),)
)
CHOSEN = Schema(
    channels=(Channel(name="flow"), Channel(name="dust")),
    covariates=(Covariate(name="target"),),
    interval_s=5.0,
    lags=3,
)


def readings(count: int, *names: str, step_ms: int = 1000, begin_ms: int = 0) -> list[Kept]:
    times = [begin_ms + step_ms * k for k in range(count)]
    return [
        Kept(t, t + 5, names, tuple(float((k * 7 + j) % 11) for j in range(len(names)))) for k, t in enumerate(times)
    ]


@pytest.mark.parametrize(
    ("found", "waited_s", "expected"),
    [
        (readings(ENOUGH - 1, "flow", "dust"), 0.0, False),
        (readings(ENOUGH, "flow", "dust"), 0.0, True),
        (readings(ENOUGH, "flow"), 0.0, False),  # nothing of dust yet
        (readings(ENOUGH, "flow"), DEADLINE_S - 1, False),
        (readings(ENOUGH, "flow"), DEADLINE_S, True),
        (readings(MOST_KEPT, "flow"), 0.0, True),
        (readings(LEAST, "flow"), DEADLINE_S, True),
        (readings(LEAST - 1, "flow"), 10 * DEADLINE_S, False),  # an hourly stream: half an hour tells nothing
        (readings(MOST_KEPT, "target"), 10 * DEADLINE_S, False),  # only a covariate came
        (readings(MOST_KEPT, "flow", "dust", step_ms=0), 10 * DEADLINE_S, False),  # a clock that stands still
        ([], 10 * DEADLINE_S, False),
    ],
)
def test_when_it_is_enough(found: list[Kept], waited_s: float, expected: bool) -> None:
    assert is_enough(SAID, found, waited_s) is expected


def test_with_the_interval_given_one_reading_is_enough_after_the_deadline() -> None:
    said = msgspec.structs.replace(SAID, interval_s=3600.0)
    assert not is_enough(said, readings(1, "flow"), DEADLINE_S - 1)
    assert is_enough(said, readings(1, "flow"), DEADLINE_S)
    choice = by_itself(said, readings(1, "flow"))
    assert (choice.schema.interval_s, choice.schema.lags) == (3600.0, 2)
    assert "nothing came for dust so far" in choice.reasons


def test_inputs_on_topics_of_their_own_are_put_together_by_their_times() -> None:
    """Flow every second, dust every five: missing values are no readings."""
    said_nothing = [Kept(t, t, ("dust",), (float("nan"),)) for t in range(0, 60_000, 1000)]
    found = [*readings(60, "flow"), *readings(12, "dust", step_ms=5000, begin_ms=300), *said_nothing]
    choice = by_itself(SAID, found, "the fleet says otherwise")
    assert choice.schema.interval_s == 5.0
    assert choice.schema.inputs == SAID.inputs
    assert choice.reasons[-1] == "the fleet says otherwise"
    assert "12 of 30 readings of dust" in progress(SAID, found)


def test_samples_come_out_as_they_went_in_whatever_the_order_of_the_schema() -> None:
    one = Sample(1000, 1005, (2, 0), (3.0, float("nan")))
    note = kept(one, SAID)
    assert (note.names, note.at_ms, note.received_ms) == (("target", "flow"), 1000, 1005)
    turned = msgspec.structs.replace(CHOSEN, channels=CHOSEN.channels[::-1])
    (back,) = samples([note], turned)
    assert (back.at_ms, back.received_ms, back.positions, back.values[0]) == (1000, 1005, (2, 1), 3.0)
    assert np.isnan(back.values[1])
    # what the schema does not have any more is left out, not put elsewhere
    fewer = msgspec.structs.replace(CHOSEN, covariates=())
    assert samples([note], fewer)[0].positions == (0,)
    assert samples([Kept(1, 1, ("gone",), (1.0,))], CHOSEN) == []


def test_whose_choice_is_taken() -> None:
    found = from_fleet(SAID, CHOSEN)
    assert isinstance(found, Choice)
    assert (found.origin, found.schema.signature()) == ("fleet", CHOSEN.signature())
    assert found.schema.channels[0].topic == "t/flow"
    assert found.reasons == ("taken from the fleet: interval 5s, lags 3, phases none, inducing 0",)
    assert from_fleet(msgspec.structs.replace(SAID, lags=2), CHOSEN) == "it has lags 3, the settings say 2"
    broken = msgspec.structs.replace(CHOSEN, lags=99)
    assert "stream.lags" in str(from_fleet(SAID, broken))


def test_an_earlier_choice_holds_but_for_what_the_owner_says_since_then() -> None:
    earlier = Choice(CHOSEN, ("because",), "readings")
    choice, change = remembered(SAID, earlier)
    assert change == ""
    assert choice is not None
    assert choice.schema.signature() == CHOSEN.signature()
    assert choice.schema.channels[0].topic == "t/flow"  # topics are of now
    choice, change = remembered(msgspec.structs.replace(SAID, lags=1), earlier)
    assert choice is not None
    assert (choice.schema.lags, choice.schema.interval_s) == (1, 5.0)
    assert change == "of the earlier choice it has lags 3, the settings say 1, which holds now"
    choice, change = remembered(msgspec.structs.replace(SAID, channels=SAID.channels[:1]), earlier)
    assert choice is None
    assert "the channels flow, dust, the settings flow" in change
    choice, change = remembered(msgspec.structs.replace(SAID, phases=(6.0,)), earlier)
    assert choice is None
    assert "a period needs two intervals" in change


def test_what_the_owner_said_must_fit_what_comes() -> None:
    with pytest.raises(ConfigError, match=r"stream\.phases"):
        by_itself(msgspec.structs.replace(SAID, phases=(1.0,)), readings(40, "flow", "dust"))


# --- on the disk ------------------------------------------------------------------------------------------------------
@pytest.fixture
def said_by_log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def files(tmp_path: Path, said_by_log: io.StringIO) -> ChoiceFiles:
    return ChoiceFiles(tmp_path, Log("test", stream=said_by_log))


def test_a_choice_and_its_readings_come_back(files: ChoiceFiles, tmp_path: Path) -> None:
    assert files.load() is None
    assert files.readings() == []
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing behind
    choice = Choice(CHOSEN, ("a", "b"), "fleet")
    files.save(choice)
    assert files.load() == choice
    found = readings(7, "flow", "dust")
    for one in found:
        files.add(one)
    assert list(files.readings()) == found
    again = ChoiceFiles(tmp_path, Log("test", level="error"))
    files.close()
    assert list(again.readings()) == found
    again.rewrite(found[3:])
    again.add(found[0])
    assert list(again.readings()) == [*found[3:], found[0]]
    again.forget()
    assert again.readings() == []
    again.forget()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["choice.bin"]


def test_cut_off_anywhere_the_whole_readings_before_it_are_there(files: ChoiceFiles, tmp_path: Path) -> None:
    found = readings(4, "flow", "dust")
    path = tmp_path / "first-readings.bin"
    sizes = []
    for one in found:
        files.add(one)
        sizes.append(path.stat().st_size)
    files.close()
    whole = path.read_bytes()
    for length in range(8, len(whole) + 1):
        path.write_bytes(whole[:length])
        files = ChoiceFiles(tmp_path, Log("test", stream=io.StringIO()))
        assert list(files.readings()) == found[: sum(size <= length for size in sizes)]
        files.close()


@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_a_choice_that_cannot_be_read_is_put_aside_and_said(
    files: ChoiceFiles, tmp_path: Path, said_by_log: io.StringIO, content: bytes | None
) -> None:
    files.save(Choice(CHOSEN))
    path = tmp_path / "choice.bin"
    path.write_bytes(path.read_bytes()[:-1] if content is None else content)
    assert files.load() is None
    assert "choosing again" in said_by_log.getvalue()
    assert (tmp_path / "choice.bin.damaged").exists()
    assert files.load() is None


def test_a_channel_that_nobody_sends_is_named_once_another_has_enough() -> None:
    assert unheard(SAID, readings(ENOUGH - 1, "flow")) == ()
    assert unheard(SAID, readings(ENOUGH, "flow")) == ("dust",)
    assert unheard(SAID, [*readings(ENOUGH, "flow"), *readings(1, "dust")]) == ()
