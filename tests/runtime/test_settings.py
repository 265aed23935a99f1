"""Settings: one table, four sources, and errors that say what was given, what is expected and where it came from."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleetgp.errors import ConfigError
from fleetgp.runtime.arguments import add_arguments, from_arguments
from fleetgp.runtime.settings import SETTINGS, Setting, Settings, load, markdown, mqtt_password, parse
from fleetgp.runtime.settings_table import Value
from fleetgp.runtime.spec import parse_span, read_wanted
from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wanted import Wanted

CHANNELS = "[channels.temperature]\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleetgp.toml"


def written(file: Path, content: str) -> Settings:
    file.write_text(content, encoding="utf-8")
    return load(file, {}, {})


def complaint(file: Path, content: str) -> str:
    with pytest.raises(ConfigError) as caught:
        written(file, content)
    return str(caught.value)


def test_each_source_goes_over_the_one_before(file: Path) -> None:
    file.write_text('[mqtt]\nurl = "mqtt://file"\nusername = "file"\nca_file = "file"\n', encoding="utf-8")
    environment = {
        "FLEETGP_MQTT_URL": "mqtt://env",
        "FLEETGP_MQTT_USERNAME": "env",
        "PATH": "/bin",
        "FLEETGP_CONFIG": "x",
    }
    settings = load(file, environment, {"mqtt.url": "mqtt://flag"})
    names = ("mqtt.url", "mqtt.username", "mqtt.ca_file", "mqtt.key_file")
    assert [settings.text(name) for name in names] == ["mqtt://flag", "env", "file", ""]
    assert [settings.source(name) for name in names] == [
        "flag --set mqtt.url",
        "environment variable FLEETGP_MQTT_USERNAME",
        f"{file}, line 4",
        "default",
    ]


def test_every_setting_can_be_set_everywhere(file: Path) -> None:
    """Its default, written into a file, the environment or a flag, means the same."""
    tables: dict[str, list[str]] = {}
    for setting in SETTINGS:
        table, _, key = setting.name.rpartition(".")
        tables.setdefault(table, []).append(f"{key} = {json.dumps(setting.default)}")
    content = "\n".join((f"[{table}]\n" if table else "") + "\n".join(lines) for table, lines in tables.items())
    defaults = load(None, {}, {})
    from_file = written(file, content)
    skipped = {setting.name for setting in SETTINGS if setting.default == ""}
    as_text = {setting.name: str(setting.default) for setting in SETTINGS if setting.name not in skipped}
    from_flags = load(None, {}, as_text)
    from_environment = load(None, {s.variable: as_text[s.name] for s in SETTINGS if s.name in as_text}, {})
    assert defaults.values == from_file.values == from_flags.values == from_environment.values
    assert "default" not in {from_file.source(setting.name) for setting in SETTINGS}


def test_the_table_is_sound() -> None:
    """Names and variables are unique, defaults lie in their own range, everything is explained."""
    assert (
        len({setting.name for setting in SETTINGS}) == len({setting.variable for setting in SETTINGS}) == len(SETTINGS)
    )
    for setting in SETTINGS:
        assert setting.help, setting.name
        assert parse(setting, str(setting.default), "") == setting.default or setting.default == ""
        is_number = isinstance(setting.default, (int, float)) and not isinstance(setting.default, bool)
        assert is_number == (setting.low is not None and setting.high is not None), setting.name


def test_values_by_type() -> None:
    settings = load(None, {}, {"mqtt.keepalive_s": " 60 ", "bridge.batch_s": "5e-1"})
    assert settings.whole("mqtt.keepalive_s") == 60
    assert settings.number("mqtt.keepalive_s") == 60.0
    assert settings.number("bridge.batch_s") == 0.5
    with pytest.raises(TypeError):
        settings.text("mqtt.keepalive_s")
    with pytest.raises(TypeError):
        settings.whole("bridge.batch_s")
    with pytest.raises(TypeError):
        settings.flag("mqtt.keepalive_s")
    with pytest.raises(TypeError):
        settings.number("fleet")
    with pytest.raises(KeyError):
        settings.text("no.such")


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [
        (False, "yes", True), (False, "TRUE", True), (False, "1", True), (True, "off", False), (True, " no ", False),
        (1, "-7", -7), (1.0, "7", 7.0), (1.0, "-.5e1", -5.0), ("", " as it is ", " as it is "),
    ],
)  # fmt: skip
def test_text_is_read_by_the_type_of_the_default(default: Value, text: str, value: Value) -> None:
    found = parse(Setting("x", default, "", "x"), text, "")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("default", "text"),
    [
        (False, "maybe"), (False, ""), (False, "2"),
        (1, "1.0"), (1, "1e3"), (1, "0x10"), (1, "1_000"), (1, ""), (1, "٣"), (1, "9" * 5000),
        (1.0, "nan"), (1.0, "inf"), (1.0, "1e999"), (1.0, "1,5"), (1.0, ""), (1.0, "1_0.0"), (1.0, "5 s"),
    ],
)  # fmt: skip
def test_text_of_the_wrong_type_is_refused(default: Value, text: str) -> None:
    with pytest.raises(ConfigError, match="expected"):
        parse(Setting("x", default, "", "x"), text, "")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"mqtt.keepalive_s": "3.5"},
            "mqtt.keepalive_s: expected a whole number of seconds from 5 to 3600, got '3.5' (from flag --set mqtt.keepalive_s)",
        ),
        ({"metrics.port": "65536"}, "metrics.port: expected a whole number from 0 to 65535, got 65536"),
        ({"bridge.batch_s": "0"}, "bridge.batch_s: expected a number of seconds from 0.01 to 60, got 0.0"),
        ({"logs.form": "xml"}, 'logs.form: expected one of "text", "json", got \'xml\''),
        ({"fleet": "my home"}, "fleet: 'my home' is not a usable name"),
        ({"fleet": ""}, "fleet: '' is not a usable name"),
        ({"mqtt.urll": "x"}, 'mqtt.urll: there is no such setting; did you mean "mqtt.url"?'),
        ({"mqqt.url": "x"}, 'mqqt.url: there is no such setting; did you mean "mqtt.url"?'),
        ({"agent.snapshots": "x"}, 'did you mean "agent.snapshot_s"?'),
        ({"xyzzy": "x"}, "xyzzy: there is no such setting; docs/settings.md lists all of them"),
        ({"channels.a": "x"}, "channels.a: can only be set in the settings file"),
    ],
)
def test_what_flags_get_wrong_is_said_in_plain_words(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {}, flags)
    assert message in str(caught.value)


def test_unknown_environment_variables_name_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r'FLEETGP_MQTT_ULR: .* did you mean "FLEETGP_MQTT_URL"\? \(from the environment\)'
    ):
        load(None, {"FLEETGP_MQTT_ULR": "x"}, {})
    assert load(None, {"FLEETGP": "x", "fleetgp_mqtt_ulr": "x", "OTHER": "x"}, {}) == load(None, {}, {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'fleet = "a"\nfleet "b"\n',
            "is not valid TOML: Expected '=' after a key in a key/value pair (at line 2, column 7)",
        ),
        ('fleet = "a"\nfleet = "b"\n', "is not valid TOML: Cannot overwrite a value (at line 2"),
        ("[mqtt]\n\nurl = 3\n", "mqtt.url: expected text, got 3 (from {file}, line 3)"),
        (
            '[mqtt]\nkeepalive_s = "30"\n',
            "mqtt.keepalive_s: expected a whole number of seconds from 5 to 3600, got '30'",
        ),
        ("[mqtt]\nkeepalive_s = 30.0\n", "got 30.0 (from {file}, line 2)"),
        ("[mqtt]\nkeepalive_s = true\n", "got True"),
        ("[agent]\nhealth_s = inf\n", "agent.health_s: expected a number of seconds from 1 to 3600, got inf"),
        ("[agent]\nhealth_s = nan\n", "got nan"),
        (f"[agent]\nhealth_s = {'9' * 400}\n", "agent.health_s: expected a number of seconds"),
        (f"[agent]\nhealth_s = {'9' * 5000}\n", "is not valid TOML"),
        ("x = " + "[" * 5000, "is not valid TOML"),
        (
            '[mqtt]\nuser = "x"\n',
            'mqtt.user: there is no such setting; did you mean "mqtt.username"? (from {file}, line 2)',
        ),
        ('[mqtts]\nurl = "x"\n', 'mqtts: unknown; did you mean "mqtt"? (from {file}, line 1)'),
        ("[chanels.a]\n", 'chanels: unknown; did you mean "channels"?'),
        ('flet = "x"\n', 'flet: unknown; did you mean "fleet"? (from {file}, line 1)'),
        ('mqtt = "x"\n', "mqtt: expected a table, [mqtt], got 'x'"),
        ("[mqtt.url]\nhost = 1\n", "mqtt.url: expected text, got {{'host': 1}}"),
        (
            CHANNELS + "unti = 'x'\n",
            'channels.temperature.unti: no such key in [channels.temperature]; did you mean "unit"?',
        ),
        (CHANNELS + "unit = 3\n", "channels.temperature: unit is 3; expected text in quotes"),
        (CHANNELS + "transform = 'log'\n", 'transform is \'log\'; expected "identity" or "log1p"'),
        ("[channels.PM2.5]\nunit = 'x'\n", '[channels."PM2.5"]'),
        (CHANNELS + "[covariates.h]\nknown_ahead = 1\n", "covariates.h: known_ahead is 1; expected true or false"),
        (CHANNELS + "known_ahead = true\n", "channels.temperature.known_ahead: no such key"),
        (CHANNELS + "[covariates.temperature]\n", "the name 'temperature' stands twice"),
        (CHANNELS + "[stream]\nlag = 3\n", 'stream.lag: no such key in [stream]; did you mean "lags"?'),
        (CHANNELS + "[stream]\nlags = 2.0\n", "stream.lags: expected a whole number, got 2.0"),
        (CHANNELS + "[stream]\nlags = 99\n", "stream.lags: needs a whole number from 1 to 24, is 99"),
        (CHANNELS + "[stream]\ninterval = '1 fortnight'\n", "stream.interval: expected a time such as"),
        ("[stream]\nlags = 3\n", "channels: none is given"),
        ("[covariates.a]\n", "channels: none is given, but covariates are"),
        (CHANNELS + "[stream]\nphases = '1d'\n", "stream.phases: expected a list of periods"),
        (CHANNELS + "[stream]\nphases = ['1s']\ninterval = '1s'\n", "stream.phases: a period needs two intervals"),
        (CHANNELS + "[stream]\nkernel = 'rbf'\n", "stream.kernel: expected se, matern32, matern52; got 'rbf'"),
        (CHANNELS + "[stream]\ninducing = true\n", "stream.inducing: expected a whole number, got True"),
        ("channels = 3\n", "channels: expected a table"),
        ("[channels]\na = 3\n", "channels.a: expected a table"),
    ],
)
def test_what_files_get_wrong_is_said_in_plain_words(file: Path, content: str, message: str) -> None:
    said = complaint(file, content)
    assert message.format(file=file) in said
    assert str(file) in said


def test_files_that_cannot_be_read(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fleetgp\.toml: the settings file cannot be read: No such file"):
        load(file, {}, {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {}, {})
    file.write_bytes(b'fleet = "a"\n# caf\xe9\n')
    with pytest.raises(ConfigError, match=r"not UTF-8 text \(line 2\)"):
        load(file, {}, {})
    file.write_bytes(b"#" * 2_000_000)
    with pytest.raises(ConfigError, match="not a settings file"):
        load(file, {}, {})
    file.write_bytes(b'\xef\xbb\xbffleet = "windows"\r\n')
    assert load(file, {}, {}).text("fleet") == "windows"


def test_channels_become_a_schema(file: Path) -> None:
    settings = written(
        file,
        '[stream]\ninterval = "1h"\nlags = 3\nphases = ["1d"]\ninducing = 0\n[channels]\n"PM2.5" = {transform = "log1p", topic = "a/b", field = "pm"}\n'
        'NO2 = {}\n[covariates.TEMP]\nunit = "°C"\nknown_ahead = true\n',
    )
    assert settings.schema() == Schema(
        channels=(Channel(name="PM2.5", transform="log1p", topic="a/b", field="pm"), Channel(name="NO2")),
        covariates=(Covariate(name="TEMP", unit="°C", known_ahead=True),),
        interval_s=3600.0,
        lags=3,
        phases=(86400.0,),
    )
    with pytest.raises(ConfigError, match=r"channels: none is given.*\[channels\.NAME\]"):
        load(None, {}, {}).schema()


def test_a_recording_spec_is_read_the_same_way() -> None:
    """Tables of others, such as [time], are left alone."""
    document = {"channels": {"a": {}}, "time": {"columns": ["year"]}}
    assert read_wanted(document, "spec.toml") == Wanted(channels=(Channel(name="a"),))


@pytest.mark.parametrize(
    ("stream", "left"),
    [
        ("", ("interval", "lags", "phases", "inducing")),
        ('interval = "1h"\n', ("lags", "phases", "inducing")),
        ('interval = "1h"\nlags = 1\nphases = []\ninducing = 0\n', ()),
        ('harmonics = 2\nkernel = "matern32"\nlags = 1\n', ("interval", "phases", "inducing")),
    ],
)
def test_what_a_file_does_not_say_of_a_stream_is_left_open(file: Path, stream: str, left: tuple[str, ...]) -> None:
    settings = written(file, f"[stream]\n{stream}{CHANNELS}")
    assert settings.wanted().open == left
    if left:
        with pytest.raises(ConfigError, match=rf"stream\.{left[0]}: not given"):
            settings.schema()
    else:
        assert settings.schema().interval_s == 3600.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1s", 1.0),
        ("5min", 300.0),
        ("1h", 3600.0),
        ("2 d", 172800.0),
        ("500ms", 0.5),
        ("0.5", 0.5),
        (10, 10.0),
        (0.25, 0.25),
    ],
)
def test_spans(value: object, seconds: float) -> None:
    assert parse_span(value, "x", "") == seconds


@pytest.mark.parametrize(
    "value", ["", "s", "-1s", "0s", "1 year", "1e3s", 0, -1, True, None, [1], float("nan"), float("inf")]
)
def test_spans_that_are_none(value: object) -> None:
    with pytest.raises(ConfigError, match="expected a time such as"):
        parse_span(value, "stream.interval", "")


def test_secrets_are_never_shown(file: Path) -> None:
    settings = load(None, {"FLEETGP_MQTT_PASSWORD": "hunter2"}, {})
    assert settings.text("mqtt.password") == "hunter2"
    rows = {name: (value, source) for name, value, source in settings.rows()}
    assert rows["mqtt.password"] == ("***", "environment variable FLEETGP_MQTT_PASSWORD")
    assert len(rows) == len(SETTINGS)
    assert "hunter2" not in repr(settings) + str(settings) + repr(rows)
    assert "31415" not in complaint(file, "[mqtt]\npassword = 31415\n")


def test_settings_cannot_be_changed() -> None:
    settings = load(None, {}, {})
    with pytest.raises(AttributeError):
        settings.values = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.values["fleet"] = "x"  # type: ignore[index]


def test_the_password_comes_from_a_file_where_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "password"
    named = load(None, {}, {"mqtt.password_file": str(path)})
    path.write_bytes(b"hunter2 \r\nsecond line\n")
    assert mqtt_password(named) == "hunter2 "
    assert mqtt_password(load(None, {}, {})) == ""
    assert mqtt_password(load(None, {}, {"mqtt.password": "direct"})) == "direct"
    with pytest.raises(ConfigError, match=r"mqtt\.password is set too"):
        mqtt_password(load(None, {}, {"mqtt.password": "x", "mqtt.password_file": str(path)}))
    path.write_bytes(b"\n")
    with pytest.raises(ConfigError, match=r"first line of .* is empty"):
        mqtt_password(named)
    path.write_bytes(b"\xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        mqtt_password(named)
    path.unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*flag --set mqtt\.password_file"):
        mqtt_password(named)


def parsed(*words: str, environment: dict[str, str] | None = None) -> Settings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return from_arguments(parser.parse_args(words), environment or {})


def test_flags_that_every_program_has(file: Path) -> None:
    file.write_text('fleet = "file"\n[logs]\nform = "json"\n', encoding="utf-8")
    settings = parsed(
        "--config", str(file), "--broker", "mqtt://b", "--set", "mqtt.url=mqtt://a", "--set", "agent.id=a",
        "--data-dir", "d", "--log-level", "debug", "--fleet", "f",
    )  # fmt: skip
    names = ("mqtt.url", "agent.id", "data.dir", "logs.level", "logs.form", "fleet")
    assert [settings.text(name) for name in names] == ["mqtt://b", "a", "d", "debug", "json", "f"]
    assert settings.source("mqtt.url") == "flag --broker"
    assert settings.source("agent.id") == "flag --set agent.id"
    assert parsed("--set", "mqtt.username=a=b").text("mqtt.username") == "a=b"


def test_the_file_may_be_named_by_the_environment(file: Path, tmp_path: Path) -> None:
    file.write_text('fleet = "one"\n', encoding="utf-8")
    assert parsed(environment={"FLEETGP_CONFIG": str(file)}).text("fleet") == "one"
    other = tmp_path / "other.toml"
    other.write_text('fleet = "two"\n', encoding="utf-8")
    assert parsed("--config", str(other), environment={"FLEETGP_CONFIG": str(file)}).text("fleet") == "two"
    assert parsed(environment={"FLEETGP_CONFIG": ""}).text("fleet") == "home"


@pytest.mark.parametrize("words", [("--set", "fleet"), ("--set", "=x")])
def test_a_set_that_sets_nothing(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="expected NAME=VALUE"):
        parsed(*words)


def test_the_page_on_settings_is_in_step_with_the_table() -> None:
    """Mend it with: python -m fleetgp.runtime.settings > docs/settings.md."""
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == markdown()
    assert all(f"`{setting.name}`" in page and f"`{setting.variable}`" in page for setting in SETTINGS)
    printed = subprocess.run(
        [sys.executable, "-m", "fleetgp.runtime.settings"], capture_output=True, check=True, encoding="utf-8"
    )
    assert printed.stdout == page
