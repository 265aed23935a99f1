"""What the device page says of a prediction's layers, and what the rounds page says of changes of the basis."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_fleet import NOW_MS, PULL, MemoryStore, Plan, Watch, history

from dashboard import device_queries, labels, layers, queries
from dashboard.device_queries import Look
from fleetgp.schema import Channel, Schema
from fleetgp.store.base import Window
from fleetgp.wire.messages import RoundNotice

TEMPERATURE, DUST = Channel(name="t", unit="°C"), Channel(name="t", unit="µg", transform="log1p")


def window(step_ms: int = 0, **columns: list[float]) -> Window:
    values = {f"t.{name}": np.array(column) for name, column in columns.items()}
    size = len(next(iter(values.values())))
    return Window(1000.0 * np.arange(size), values, values, values, step_ms)


def told(channel: Channel = TEMPERATURE, *, is_level: bool = False, **columns: list[float]) -> layers.LayerData:
    data = layers.layer_data(window(**columns), channel, is_level)
    assert data is not None
    return data


NARROW = {"low": [20.9, 20.9], "high": [21.1, 21.1]}


def test_a_device_runs_its_own_push_over_the_pull_from_where_the_fleet_would_have_it():
    own = {"deviation": [0.4, 0.5], "local": [0.1, 0.0], "shared": [-0.5, -0.5], "pull": [0.25, 0.25]}
    assert (
        told(mean=[21.0, 21.0], **own, **NARROW).sentence
        == "Runs 2.0 °C above where the fleet would have it, all else as it is: at 21.0 °C, not 19.0 °C."
    )
    below = {name: [-value for value in column] for name, column in own.items() if name != "pull"}
    assert "2.0 °C below where" in told(mean=[21.0, 21.0], **below, pull=own["pull"], **NARROW).sentence
    wide = {"low": [0.0, 0.0], "high": [42.0, 42.0]}
    assert (
        told(mean=[21.0, 21.0], **own, **wide).sentence == "Runs where the fleet would have it: at 21.0 °C on average."
    )


def test_where_nothing_pulls_back_no_level_is_told():
    own = {"deviation": [0.4, 0.5], "local": [0.1, 0.0], "shared": [-0.5, -0.5], "pull": [0.0, 0.01]}
    said = told(mean=[21.0, 21.0], **own).sentence
    assert said == "On average the fleet's knowledge moves it by −0.50 °C a frame, its own ways by +0.50 °C."


def test_who_is_alone_is_said_to_be():
    own = {"shared": [0.0, 0.0], "deviation": [0.4, 0.5], "local": [0.1, 0.0], "pull": [0.0, 0.0]}
    assert told(mean=[21.0, 21.0], **own).sentence == labels.ALONE_LINE
    assert told(is_level=True, mean=[21.0, 21.0], **own).sentence == labels.ALONE_LINE


def test_layers_of_a_level_are_the_distance_itself():
    own = {"shared": [1.0, 1.0], "deviation": [2.0, 2.0], "local": [0.1, 0.1]}
    assert (
        "2.1 °C above where the fleet would have it, all else as it is: at 21.0 °C, not 18.9"
        in told(is_level=True, mean=[21.0, 21.0], **own).sentence
    )


def test_layers_under_a_transform_are_shown_in_the_readings_unit():
    """By hand: base 1, then steps to 2, 1.5 and 1.75 in the logarithm; the fleet's level is log1p(mean) - 0.75 / 0.5 ..."""
    mean = float(np.expm1(1.75))
    data = told(DUST, mean=[mean], shared=[1.0], deviation=[-0.5], local=[0.25], pull=[0.5], low=[mean], high=[mean])
    expected = np.exp([2.0, 1.5, 1.75]) - np.exp([1.0, 2.0, 1.5])
    np.testing.assert_allclose(data.points.to_numpy()[0], expected, rtol=1e-12)
    fleet = float(np.expm1(1.75 + 0.25 / 0.5))
    assert (
        f"{fleet - mean:.1f} µg below where the fleet would have it, all else as it is: at {mean:.1f} µg, not {fleet:.1f}"
        in data.sentence
    )


def test_predictions_without_layers_have_none_and_half_told_ones_show_their_part():
    assert layers.layer_data(window(mean=[1.0]), TEMPERATURE, is_level=False) is None
    nothing = [np.nan, np.nan]
    assert (
        layers.layer_data(window(mean=[1.0, 1.0], shared=nothing, deviation=nothing, local=nothing), TEMPERATURE, False)
        is None
    )
    half = told(mean=[1.0, 1.0], shared=[np.nan, 1.0], deviation=[np.nan, 1.0], local=[np.nan, 0.0], pull=[np.nan, 0.5])
    assert "Runs 2.0 °C above" in half.sentence


def test_a_page_without_layers_does_not_ask_the_store_for_them(watch: Watch):
    source = watch(MemoryStore(history(Plan(agents=2, frames=30, rounds=0))))[0]
    view = source.look()
    asked = [device_queries.device_request(view, "press-1", None, on) for on in (True, False)]
    assert all(one is not None for one in asked)
    with_layers, without = (set(one.columns) for one in asked if one is not None)
    ends = {name.rsplit(".", 1)[-1] for name in with_layers - without}
    assert (len(with_layers - without), ends) == (16, {"shared", "deviation", "local", "pull"})


def test_every_channel_of_a_stored_fleet_tells_its_level(watch: Watch):
    """The third device of the made-up fleet is 0.8 of a channel's swing above the fleet, by its own rhythm no more."""
    source = watch(MemoryStore(history(Plan(agents=3, frames=100, rounds=0))))[0]
    view, look = source.look(), Look("press-3", None, "UTC")
    request = device_queries.device_request(view, look.agent, look.span_ms)
    assert request is not None
    rows = source.window("press-3", request.columns, request.start_ms, request.end_ms, 600)
    assert rows is not None
    data = device_queries.device_data(view, "press-3", rows, "UTC")
    temperature = next(channel.layers for channel in data.channels if channel.name == "temperature")
    assert temperature is not None
    assert "Runs 2.4 °C above where the fleet would have it" in temperature.sentence
    assert temperature.points["deviation"].tolist() == pytest.approx([2.4 * PULL] * 100)
    assert layers.is_level(Schema(channels=(TEMPERATURE,))) is False


TOLD = "new basis: learnt by gradients (7 steps, 4 taken back)"


def changed(number: int, gain: float | None = None, **more: object) -> RoundNotice:
    given: dict[str, object] = {"basis": 1, "state": "closed", "note": "new basis", **more}
    return RoundNotice(at_ms=NOW_MS + number, round=number, gain=gain, **given)  # type: ignore[arg-type]


def test_changes_of_the_basis_are_told_with_what_they_gained():
    data = queries.rounds_data(
        [],
        "UTC",
        changes=[changed(9, 0.031, bytes_received=1500, note=f"{TOLD}, 0.0310 nats per reading better"), changed(4)],
    )
    assert data.changes[labels.CHANGE_WHAT].tolist() == [TOLD, "new basis"]  # the gain has a column
    assert data.changes[labels.CHANGE_GAIN].tolist() == ["+0.031", "–"]
    assert data.changes[labels.CHANGE_WORDS].tolist() == ["clear, as of bands 3.1 % narrower", "not measured"]
    assert data.changes[labels.ROUND_RECEIVED].tolist() == ["1.5 kB", "0 B"]


@pytest.mark.parametrize(
    ("gain", "word"),
    [(0.0019, "no difference"), (0.004, "small, as of bands 0.4 % narrower"), (0.2, "large, as of bands 18 % narrower"),
     (-0.02, "a loss, as of bands 2 % wider")],
)  # fmt: skip
def test_a_gain_in_words(gain: float, word: str):
    assert labels.gain(gain) == word


def test_changes_older_than_the_rounds_shown_are_found_and_kept(watch: Watch):
    rounds = [changed(3, 0.02), *(changed(number, note="") for number in range(4, 600)), changed(600, basis=0)]
    store = MemoryStore(history(Plan(agents=1, frames=2, rounds=0)))
    assert store.batch is not None
    store.batch = store.batch.__class__(rows=store.batch.rows, rounds=rounds)
    source, clock = watch(store)
    assert [notice.round for notice in source.look().changes] == [3]
    rounds += [changed(601), changed(602, 0.01, state="opened")]
    clock.advance(60.0)
    assert [notice.round for notice in source.look().changes] == [601, 3]
    assert len(source.look().rounds) == 200
