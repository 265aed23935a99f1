"""Settings to an agent, which topic feeds which input, and the agent's small diet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edge_agent.cli import agent
from edge_agent.config import TOLD, agent_config, wiring
from fleetgp.errors import ConfigError
from fleetgp.gp.learner import Forgetting
from fleetgp.runtime.settings import load
from fleetgp.schema import Channel, Covariate, Schema

MINIMAL = {"agent.id": "pump-1", "agent.topic": "sensors/pump-1"}
FILE = '[stream]\ninterval = "2s"\nlags = 3\nphases = []\ninducing = 0\n[channels]\nflow = {}\ndust = { transform = "log1p" }\n'


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "fleetgp.toml"
    path.write_text(text)
    return path


def test_an_agents_settings_reach_its_brain(tmp_path: Path) -> None:
    flags = {
        **MINIMAL,
        "agent.lateness_s": "4.5",
        "agent.warmup_frames": "33",
        "agent.alarm_score": "5.5",
        "agent.half_life_frames": "500",
        "agent.short_half_life_frames": "100",
        "agent.refresh_frames": "16",
        "agent.local_inducing": "7",
        "agent.model": "no-local",
    }
    config = agent_config(load(written(tmp_path), {}, flags))
    assert config.agent_id == "pump-1"
    assert config.schema.channel_names == ("flow", "dust")
    assert (config.schema.interval_s, config.schema.lags) == (2.0, 3)
    assert (config.lateness_ms, config.warmup_frames, config.alarm_score) == (4500, 33, 5.5)
    assert config.forgetting == Forgetting(500.0, 100.0, 16)
    assert config.local_inducing == 7
    assert config.model == "no-local"


@pytest.mark.parametrize(("clock", "is_live"), [("live", True), ("receive", True), ("recording", False)])
def test_only_a_recordings_clock_keeps_frames_open_while_time_passes(tmp_path: Path, clock: str, is_live: bool) -> None:
    assert agent_config(load(written(tmp_path), {}, {**MINIMAL, "agent.clock": clock})).is_live is is_live


@pytest.mark.parametrize(
    ("word", "near"), [("alon", "alone"), ("no_deviation", "no-deviation"), ("global", "global-only")]
)
def test_a_model_that_there_is_not_is_told_with_the_nearest_word(tmp_path: Path, word: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf'agent.model.*"full".*did you mean "{near}"'):
        load(written(tmp_path), {}, {**MINIMAL, "agent.model": word})
    with pytest.raises(ConfigError, match=f'did you mean "{near}".*flag --set agent.model'):
        agent(["--config", str(written(tmp_path)), "--id", "pump-1", "--model", word])


def test_an_agent_without_a_name_is_told_how_to_give_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'\[agent\] id = "pump-1"'):
        agent_config(load(written(tmp_path), {}, {}))


def schema(*channels: Channel, covariates: tuple[Covariate, ...] = ()) -> Schema:
    return Schema(channels=channels, covariates=covariates)


def test_inputs_without_a_topic_of_their_own_share_the_agents() -> None:
    found = wiring(
        schema(
            Channel(name="flow"),
            Channel(name="room", topic="sensors/thermostat", field="temperature"),
            covariates=(Covariate(name="target", topic="sensors/thermostat", field="setpoint"), Covariate(name="mode")),
        ),
        "sensors/pump",
    )
    assert found.fields == {
        "sensors/pump": {"flow": 0, "mode": 3},
        "sensors/thermostat": {"temperature": 1, "setpoint": 2},
    }
    assert found.topics == ("sensors/pump", "sensors/thermostat")


def test_the_only_input_of_a_topic_may_also_be_one_plain_number() -> None:
    found = wiring(schema(Channel(name="flow", topic="a"), Channel(name="x", topic="b", field="value")), "")
    assert found.fields == {"a": {"flow": 0, "value": 0}, "b": {"value": 1}}


@pytest.mark.parametrize(
    ("wrong", "topic", "says"),
    [
        (schema(Channel(name="flow")), "", "has no topic"),
        (schema(Channel(name="flow", topic="sensors/+/flow")), "", "pattern"),
        (schema(Channel(name="flow")), "sensors/#", "pattern"),
        (schema(Channel(name="flow"), Channel(name="back", field="flow")), "sensors/pump", "read twice"),
    ],
)
def test_wiring_that_cannot_work_names_the_channel(wrong: Schema, topic: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        wiring(wrong, topic)
    assert caught.value.key.startswith("channels.")


def test_an_agent_imports_numpy_paho_and_msgspec_and_nothing_else_that_is_not_pythons_own() -> None:
    """In a fresh interpreter, on everything that the running agent imports: what a small device must hold."""
    code = (
        "import sys; before = set(sys.modules); import edge_agent.service, edge_agent.cli, fleetgp.cli;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    foreign = set(done.stdout.split()) - set(sys.stdlib_module_names) - {"edge_agent", "fleetgp"}
    # msgspec takes typing_extensions along where something else has installed it
    assert foreign - {"typing_extensions"} == {"numpy", "paho", "msgspec"}


@pytest.mark.parametrize("name", ["coordinator", "bridge"])
def test_names_of_other_programs_are_refused(name: str) -> None:
    """Their health would be mixed up in the history."""
    settings = load(None, {}, {"agent.id": name})
    with pytest.raises(ConfigError, match="another program"):
        agent_config(settings)


@pytest.mark.parametrize("layers", ["true", "false"])
def test_what_an_agent_tells_of_its_settings_makes_the_same_agent_again(tmp_path: Path, layers: str) -> None:
    """As text and numbers, flags among them: that is how a recording of it is run again."""
    flags = {**MINIMAL, "agent.layers": layers, "agent.refresh_frames": "64", "agent.alarm_score": "7.5"}
    settings = load(written(tmp_path), {}, flags)
    told = settings.told(TOLD)
    assert told["agent.layers"] == layers
    again = load(written(tmp_path), {}, MINIMAL).with_told(told, "a recording")
    assert agent_config(again) == agent_config(settings)
    assert agent_config(again).layers is (layers == "true")
