"""The flags that every program shares, and the settings that come of them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path

from fleetgp.errors import ConfigError
from fleetgp.runtime.settings import CONFIG_VARIABLE, Settings, load

# flag, the setting it stands for, what it is called in the help, help
_SHORTHANDS = (
    ("--broker", "mqtt.url", "URL", "the MQTT broker, e.g. mqtt://192.168.1.10:1883 (setting mqtt.url)"),
    ("--fleet", "fleet", "NAME", "name of the fleet (setting fleet)"),
    ("--data-dir", "data.dir", "DIR", "folder for all that is kept (setting data.dir)"),
    ("--log-level", "logs.level", "LEVEL", "debug, info, warning or error (setting logs.level)"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Give a program the flags --config, --set, --broker, --fleet, --data-dir and --log-level."""
    group = parser.add_argument_group("settings", "defaults < --config file < FLEETGP_... environment < these flags")
    group.add_argument("--config", metavar="FILE", type=Path, help=f"settings file, TOML (or {CONFIG_VARIABLE})")
    group.add_argument(
        "--set",
        metavar="NAME=VALUE",
        dest="overrides",
        action="append",
        default=[],
        help="any setting of docs/settings.md, e.g. --set coordinator.round_s=10; may be repeated",
    )
    for flag, name, metavar, text in _SHORTHANDS:
        group.add_argument(flag, metavar=metavar, dest=f"setting:{name}", help=text)


def from_arguments(args: Namespace, environment: Mapping[str, str]) -> Settings:
    """Settings from parsed flags and the environment. Raises ConfigError."""
    flags: dict[str, str] = {}
    names: dict[str, str] = {}
    for override in args.overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError("--set", f"expected NAME=VALUE, e.g. --set coordinator.round_s=10, got {override!r}")
        flags[name.strip()] = value
    for flag, name, _, _ in _SHORTHANDS:
        value = getattr(args, f"setting:{name}", None)
        if value is not None:
            flags[name], names[name] = value, flag
    path = args.config or (Path(environment[CONFIG_VARIABLE]) if environment.get(CONFIG_VARIABLE) else None)
    return load(path, environment, flags, names)
