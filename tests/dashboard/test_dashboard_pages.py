"""Every page, run by Streamlit itself on made-up fleets: what it says, and that it never shows a traceback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest
from synthetic_fleet import NOW_MS, MemoryStore, Plan, Watch, history

from dashboard import labels
from fleetgp.store.base import Batch
from fleetgp.wire.messages import Status

Show = Callable[..., AppTest]


def fleet_script() -> None:
    from dashboard import app

    app.main()


def device_script() -> None:
    from dashboard import app

    app.show_device()


def rounds_script() -> None:
    from dashboard import app

    app.show_rounds()


SCRIPTS = {"fleet": fleet_script, "device": device_script, "rounds": rounds_script}


@pytest.fixture
def show(watch: Watch) -> Show:
    """Run a page on a store; fails on any exception the page shows."""

    def run(page: str, store: Batch | MemoryStore | None, **state: object) -> AppTest:
        made = store if isinstance(store, MemoryStore) else MemoryStore(store)
        app = AppTest.from_function(SCRIPTS[page], default_timeout=60)
        app.session_state["source"] = watch(made)[0]
        for name, value in state.items():
            app.session_state[name] = value
        app.run()
        assert not app.exception, [problem.message for problem in app.exception]
        return app

    return run


def words(app: AppTest) -> str:
    """Everything the page says."""
    return "\n".join(
        element.value for kind in ("markdown", "caption", "info", "warning", "subheader") for element in app.get(kind)
    )


def charts(app: AppTest) -> int:
    return len(app.get("vega_lite_chart"))


@pytest.mark.parametrize("page", SCRIPTS)
@pytest.mark.parametrize(
    ("plan", "what"),
    [
        (Plan(frames=80), "populated"),
        (Plan(agents=1, frames=60), "one agent"),
        (Plan(frames=60, dead="press-1", silent="press-3"), "an agent that died"),
        (Plan(agents=2, frames=60, missing_channel="pressure"), "a channel that never arrived"),
        (Plan(agents=60, frames=12, rounds=70), "sixty agents"),
        (Plan(agents=2, frames=2, rounds=0), "two frames"),
        (Plan(agents=2, frames=30, interval_s=3600.0, end_ms=1_400_000_000_000), "a recording of 2014"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_page_fails(show: Show, page: str, plan: Plan, what: str):
    app = show(page, history(plan))
    assert len(words(app)) > 40


@pytest.mark.parametrize("page", SCRIPTS)
def test_a_missing_store_says_what_to_do(show: Show, page: str):
    said = words(show(page, None))
    assert labels.MISSING_TITLE in said
    assert "fleetgp demo" in said
    assert "fleetgp dashboard --store PATH" in said


@pytest.mark.parametrize("page", SCRIPTS)
def test_an_empty_store_says_what_to_do(show: Show, page: str):
    said = words(show(page, Batch()))
    assert labels.EMPTY_TITLE in said
    assert "fleetgp doctor" in said


@pytest.mark.parametrize("page", SCRIPTS)
def test_a_store_that_refuses_says_why(show: Show, page: str):
    store = MemoryStore(Batch())
    store.refuse = "it is locked by another program"
    said = words(show(page, store))
    assert labels.UNREADABLE_TITLE in said
    assert "it is locked by another program" in said


def test_fleet_page_headline_and_rows(show: Show):
    app = show("fleet", history(Plan(frames=80, dead="press-5", rounds=9)))
    facts = {metric.label: (metric.value, metric.delta) for metric in app.metric}
    assert facts[labels.AGENTS_ALIVE] == ("5 of 6", "1 offline")
    assert facts[labels.MESSAGES] == ("480", "from 6 topics")
    assert facts[labels.ALARMS_OPEN] == ("1", "2 began in the last 24 h")
    assert facts[labels.LAST_ROUND][0] == "9"
    agents, events = (table.value for table in app.dataframe)
    assert agents[labels.AGENT].tolist() == [f"press-{n}" for n in range(1, 7)]
    assert agents[labels.PRESENCE].tolist() == ["● alive"] * 4 + ["○ offline", "● alive"]
    assert events[labels.AGENT].tolist() == ["press-2", "press-2"]
    assert "90 % of readings should fall in the band" in words(app)


@pytest.mark.parametrize("page", ["fleet", "device"])
def test_programs_but_no_agent(show: Show, page: str):
    bridge = Status(at_ms=NOW_MS, name="bridge", role="bridge", is_online=True)
    assert labels.NO_AGENTS in words(show(page, Batch(statuses=[bridge])))


def test_device_page_draws_score_legend_and_three_charts_a_channel(show: Show):
    app = show("device", history(Plan(frames=80)), agent="press-2")
    assert app.selectbox(key="agent_picker").value == "press-2"
    assert charts(app) == 2 + 3 * 4
    said = words(app)
    assert "where the fleet would have it" in said
    assert labels.LAYERS_NOTE in said
    assert "temperature (°C)" in said
    assert "1 open alarm" in said
    assert "90 % of readings should fall in the band" in said
    (events,) = (table.value for table in app.dataframe)
    assert events[labels.EVENT_BLAME].tolist()[0] == "current (100 %)"


def test_device_page_follows_the_pickers(show: Show):
    app = show("device", history(Plan(frames=700)))
    app.selectbox(key="agent_picker").select("press-3").run()
    assert not app.exception
    assert labels.NO_EVENTS in words(app)
    assert "Every point is one frame." in words(app)
    assert app.query_params["agent"] in ("press-3", ["press-3"])  # by version of Streamlit
    app.segmented_control(key="range_picker").set_value("All").run()
    assert not app.exception
    assert "Every point is the average of 2 s" in words(app)
    app.toggle(key="live_toggle").set_value(False).run()
    assert not app.exception


def test_device_page_of_an_agent_without_frames(show: Show):
    status = Status(at_ms=NOW_MS, name="new-one", role="agent", is_online=True, state="starting")
    said = words(show("device", Batch(statuses=[status])))
    assert labels.no_frames("new-one") in said
    assert "starting" in said


def test_device_page_says_when_a_channel_has_no_readings(show: Show):
    app = show("device", history(Plan(agents=1, frames=50, missing_channel="pressure")))
    assert words(app).count(labels.NO_CHANNEL_DATA) == 1
    assert charts(app) == 2 + 3 * 3 + 1


def test_layers_can_be_left_out_and_a_history_without_says_so(show: Show):
    app = show("device", history(Plan(agents=2, frames=40)))
    app.toggle(key="layers_True").set_value(False).run()
    assert not app.exception
    assert charts(app) == 2 + 2 * 4
    assert labels.LAYERS_NOTE not in words(app)
    older = show("device", history(Plan(agents=2, frames=40, with_layers=False)))
    assert charts(older) == 2 + 2 * 4
    assert labels.NO_LAYERS in words(older)


def test_a_forgotten_agent_in_the_address_is_no_error(show: Show):
    app = show("device", history(Plan(agents=2, frames=20)), agent="long-gone")
    assert app.selectbox(key="agent_picker").value == "press-1"


def test_a_new_agent_appears_in_the_picker_by_itself(show: Show, watch: Watch):
    batch = history(Plan(agents=2, frames=20))
    store = MemoryStore(batch)
    source, clock = watch(store)
    app = show("device", store, source=source)
    assert app.selectbox(key="agent_picker").options == ["press-1", "press-2"]
    newcomer = Status(at_ms=NOW_MS, name="press-9", role="agent", is_online=True)
    store.batch = replace(batch, statuses=[*batch.statuses, newcomer])
    clock.advance(5)
    app.run()
    assert app.selectbox(key="agent_picker").options == ["press-1", "press-2", "press-9"]


def test_rounds_page(show: Show):
    app = show("rounds", history(Plan(frames=20, rounds=12)))
    assert charts(app) == 3
    assert labels.ROUND_SENTENCE in words(app)
    changes, table = (table.value for table in app.dataframe)
    assert table[labels.ROUND].tolist() == list(range(12, 0, -1))
    assert changes[labels.ROUND].tolist() == [9, 5, 2]
    assert changes[labels.CHANGE_GAIN].tolist() == ["+0.031", "–", "–"]
    assert labels.NO_CHANGES in words(show("rounds", history(Plan(frames=20, rounds=1))))


def test_rounds_page_before_the_first_round(show: Show):
    app = show("rounds", history(Plan(agents=2, frames=20, rounds=0)))
    assert labels.NO_ROUNDS in words(app)
    assert charts(app) == 0
