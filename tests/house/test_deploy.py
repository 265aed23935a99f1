"""What is deployed: images, compose file, systemd unit, example. No Docker engine is needed; see docker/try_steps.py."""

from __future__ import annotations

import configparser
import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fleetgp.runtime.settings import load

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docker"))

from healthcheck import main as check_health  # noqa: E402
from try_steps import DOCKERFILE, Builder, Instruction, StepError, read_instructions  # noqa: E402

PROGRAMS = ("agent", "coordinator", "bridge", "dashboard")
UNIT = ROOT / "docs" / "systemd" / "fleetgp-agent.service"

# The part of the compose format that our file may use, written for this test: an unknown key is a slip of the pen.
_TEXTS = {"type": "array", "items": {"type": "string"}}
_SPAN = {"type": "string", "pattern": r"^(\d+(ms|s|m|h))+$"}
_NAMES = r"^[a-zA-Z0-9._-]+$"
_SERVICE: dict[str, Any] = {
    "image": {"type": "string"},
    "build": {
        "type": "object",
        "properties": {key: {"type": "string"} for key in ("context", "dockerfile", "target")},
        "required": ["context"],
        "additionalProperties": False,
    },
    "command": {"oneOf": [{"type": "string"}, _TEXTS]},
    "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
    "init": {"type": "boolean"},
    "read_only": {"type": "boolean"},
    "stop_grace_period": _SPAN,
    "tmpfs": _TEXTS,
    "cap_drop": _TEXTS,
    "security_opt": _TEXTS,
    "volumes": {"type": "array", "items": {"type": "string", "pattern": r"^[^:]+:/[^:]+(:ro)?$"}},
    "ports": {"type": "array", "items": {"type": "string", "pattern": r"^([0-9.]+:)?\d+:\d+$"}},
    "mem_limit": {"type": "string", "pattern": r"^\d+[kmg]$"},
    "environment": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
    "depends_on": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {"condition": {"enum": ["service_started", "service_healthy"]}},
            "required": ["condition"],
            "additionalProperties": False,
        },
    },
    "healthcheck": {
        "type": "object",
        "properties": {
            "test": {
                "type": "array",
                "prefixItems": [{"enum": ["CMD", "CMD-SHELL", "NONE"]}],
                "items": {"type": "string"},
            },
            "interval": _SPAN,
            "timeout": _SPAN,
            "start_period": _SPAN,
            "retries": {"type": "integer", "minimum": 1},
        },
        "required": ["test"],
        "additionalProperties": False,
    },
    "logging": {
        "type": "object",
        "properties": {
            "driver": {"type": "string"},
            "options": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "additionalProperties": False,
    },
}
COMPOSE_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9_-]+$"},
        "services": {
            "type": "object",
            "minProperties": 1,
            "patternProperties": {
                _NAMES: {
                    "type": "object",
                    "properties": _SERVICE,
                    "anyOf": [{"required": ["image"]}, {"required": ["build"]}],
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
        "volumes": {"type": "object", "patternProperties": {_NAMES: {"type": "null"}}, "additionalProperties": False},
    },
    "patternProperties": {"^x-": {}},
    "required": ["services"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def stages() -> dict[str, list[Instruction]]:
    """Instructions of the Dockerfile by stage, those of the stages it is built on first."""
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for instruction in read_instructions(DOCKERFILE.read_text(encoding="utf-8")):
        if instruction.word == "FROM":
            source, name = re.split(r"\s+AS\s+", instruction.rest)
            current = found[name] = list(found.get(source, []))
        current.append(instruction)
    return found


def test_compose_file_is_of_the_format(compose: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(COMPOSE_SCHEMA).validate(compose)


@pytest.mark.parametrize(
    ("key", "value"), [("imagee", "x"), ("restart", "sometimes"), ("ports", [8501]), ("healthcheck", {"retries": 3})]
)
def test_the_format_refuses_slips(compose: dict[str, Any], key: str, value: object) -> None:
    broken = {**compose, "services": {**compose["services"], "agent": {**compose["services"]["agent"], key: value}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(COMPOSE_SCHEMA).validate(broken)


def test_compose_file_fits_together(compose: dict[str, Any], stages: dict[str, list[Instruction]]) -> None:
    services = compose["services"]
    assert set(services) == {"broker", *PROGRAMS}
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            is_there = (ROOT / "docker" / source).exists() if source.startswith(".") else source in compose["volumes"]
            assert is_there, f"{name}: {source}"
        for other, needs in service.get("depends_on", {}).items():
            assert needs["condition"] != "service_healthy" or "healthcheck" in services[other]
        if "build" in service:
            assert service["build"]["target"] in stages
            assert (ROOT / "docker" / service["build"]["context"] / service["build"]["dockerfile"]).exists()


def test_bridge_and_dashboard_share_the_history(compose: dict[str, Any]) -> None:
    assert compose["services"]["bridge"]["volumes"] == compose["services"]["dashboard"]["volumes"]


def test_settings_in_the_environment_exist(compose: dict[str, Any], stages: dict[str, list[Instruction]]) -> None:
    for name in PROGRAMS:
        image = dict(re.findall(r"(FLEETGP_\w+)=(\S+)", " ".join(i.rest for i in stages[name] if i.word == "ENV")))
        given = image | {key: str(value) for key, value in compose["services"][name]["environment"].items()}
        settings = load(None, given, {})  # refuses unknown names and values out of range
        assert settings.text("mqtt.url") == "mqtt://broker:1883"
        assert settings.text("data.dir") == "/var/lib/fleetgp"
        assert settings.whole("metrics.port") == 9464


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_image_is_slim_not_root_and_checks_its_health(program: str, stages: dict[str, list[Instruction]]) -> None:
    def last(word: str) -> str:
        return [instruction.rest for instruction in stages[program] if instruction.word == word][-1]

    assert "-slim" in next(i.rest for i in stages[program] if i.word == "FROM")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last("USER"))
    assert last("ENTRYPOINT") == f'["fleetgp", "{program}"]'
    assert "healthcheck.py" in last("HEALTHCHECK")
    assert not any("pip" in instruction.rest for instruction in stages[program] if instruction.word == "RUN")


def test_every_install_is_pinned_by_the_constraints(stages: dict[str, list[Instruction]]) -> None:
    installs = {i.rest for steps in stages.values() for i in steps if i.word == "RUN" and " install " in i.rest}
    assert len(installs) == len(PROGRAMS)
    assert all("-c constraints.txt" in step for step in installs)


def test_everything_the_dockerfile_copies_is_let_through(stages: dict[str, list[Instruction]]) -> None:
    ignore = (ROOT / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    copied = {
        word
        for steps in stages.values()
        for step in steps
        if step.word == "COPY" and "--from" not in step.rest
        for word in step.rest.split()[:-1]
    }
    assert copied == allowed
    assert all((ROOT / path).exists() for path in copied)


def test_steps_are_read_with_continuations_and_comments() -> None:
    text = "FROM a AS b\n# no\nRUN one \\\n    # inside\n    && two\nENV A=1 \\\n  B=2\n"
    assert [(i.word, i.rest, i.line) for i in read_instructions(text)] == [
        ("FROM", "a AS b", 1),
        ("RUN", "one && two", 3),
        ("ENV", "A=1 B=2", 6),
    ]


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("image"))


def test_a_step_runs_in_its_own_folder_with_its_environment(builder: Builder) -> None:
    builder.build('FROM x AS one\nENV WORD=here\nWORKDIR /src\nRUN mkdir /wheels && echo "$WORD" > /wheels/found\n')
    builder.build("FROM one AS two\nRUN test -f /wheels/found && python -m pip --version\n")
    assert (builder.base / "one" / "wheels" / "found").read_text() == "here\n"
    assert not Path("/wheels").exists()


@pytest.mark.parametrize(
    ("line", "message"), [("RUN false", "ended with 1"), ("COPY nowhere /src/", "no nowhere"), ("CURSE x", "not known")]
)
def test_a_step_that_fails_is_named(builder: Builder, line: str, message: str) -> None:
    name = line.split()[0].lower()
    with pytest.raises(StepError, match=rf"line 2.*{message}"):
        builder.build(f"FROM x AS {name}\n{line}\n")


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers every path with the status it names."""

    def do_GET(self) -> None:
        self.send_response(int(self.path.removeprefix("/")))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), name="answer", daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (204, 1), (404, 1), (503, 1)])
def test_health_follows_the_answer(port: int, status: int, expected: int) -> None:
    assert check_health(f"http://127.0.0.1:{port}/{status}") == expected


def test_nobody_there_is_not_healthy() -> None:
    assert check_health("http://127.0.0.1:9/healthz") == 1


def unit() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT, encoding="utf-8")
    return parser


def test_unit_keeps_the_agent_running_and_shut_in() -> None:
    service = dict(unit()["Service"])
    assert service["Restart"] == "always"
    assert float(service["RestartSec"]) > 0
    assert service["User"] == "fleetgp"
    assert service["StateDirectory"] == "fleetgp"
    assert service["NoNewPrivileges"] == "true"
    assert service["ProtectSystem"] == "strict"
    assert re.fullmatch(r"\d+M", service["MemoryMax"])
    assert unit()["Unit"]["StartLimitIntervalSec"] == "0"


def test_settings_in_the_unit_exist() -> None:
    given = dict(re.findall(r"^Environment=(FLEETGP_\w+)=(\S+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE))
    assert load(None, given, {}).text("data.dir") == "/var/lib/fleetgp"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here to verify the unit")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(
        re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    command = ["systemd-analyze", "verify", "--man=no", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if UNIT.name in line]) == (0, [])


def test_the_example_is_read_and_says_what_its_comments_say() -> None:
    settings = load(ROOT / "examples" / "fleetgp.toml", {}, {})
    wanted = settings.wanted()
    assert settings.text("agent.topic") == "sensors/heatpump"
    assert [channel.name for channel in wanted.channels] == ["flow", "return", "power", "room"]
    assert wanted.channels[3].topic == "sensors/thermostat"
    assert wanted.channels[3].field == "temperature"
    assert wanted.channels[2].transform == "log1p"
    assert [covariate.known_ahead for covariate in wanted.covariates] == [False, True]
    assert wanted.open == ("interval", "lags", "phases", "inducing")
