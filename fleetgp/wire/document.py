"""docs/wire.md, made from the structs and topics themselves: ``python -m fleetgp.wire.document`` prints it.

What a field means is taken from the docstring of its struct, where it stands as ``name: meaning;`` or ``a, b: meaning.``;
words that mean the same in every message stand in COMMON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire import codec, topics
from fleetgp.wire.messages import ALL, BY_KIND, VERSION, ChannelPrediction, Included, Tensor


@dataclass(frozen=True)
class Route:
    """One topic: who speaks, who listens, and how it is delivered."""

    topic: str
    kind: str
    sender: str
    receivers: str
    qos: int
    is_retained: bool = False


ROUTES: tuple[Route, ...] = (
    Route(topics.agent("<fleet>", "<id>", "status"), "status", "agent; its will", "all", 1, True),
    Route(topics.agent("<fleet>", "<id>", "predictions"), "predictions", "agent", "bridge", 0),
    Route(topics.agent("<fleet>", "<id>", "events"), "events", "agent", "bridge", 1),
    Route(topics.agent("<fleet>", "<id>", "bootstrap"), "bootstrap", "agent", "coordinator", 1),
    Route(topics.agent("<fleet>", "<id>", "summary"), "summary", "agent", "coordinator", 1),
    Route(topics.agent("<fleet>", "<id>", "gradient"), "gradient", "agent", "coordinator", 1),
    Route(topics.agent("<fleet>", "<id>", "health"), "health", "agent", "bridge", 0),
    Route(topics.service("<fleet>", "<name>", "status"), "status", "coordinator, bridge; their wills", "all", 1, True),
    Route(topics.service("<fleet>", "<name>", "health"), "health", "coordinator, bridge", "bridge", 0),
    Route(topics.fleet_wide("<fleet>", "model"), "model", "coordinator", "agents", 1, True),
    Route(topics.fleet_wide("<fleet>", "round"), "round", "coordinator", "agents, bridge", 1),
    Route(topics.fleet_wide("<fleet>", "tuning"), "tuning", "coordinator", "agents", 1, True),
)

COMMON = {
    "version": "version of the message's form",
    "at_ms": "when it was made, UTC milliseconds since 1970",
    "agent": "id of the agent that speaks",
    "name": "who or what it is: an agent's id, a program's name, a channel's name",
    "role": "what kind of program it is",
    "instance": "made anew at every start; tells two programs under one name apart",
    "is_online": "false in the will and in the farewell",
    "software": "version of FleetGP that runs",
    "host": "name of the machine",
    "basis": "number of the basis (features and scaling) it refers to; 0 = the agent's own",
    "round": "number of the fleet's round it refers to; 0 = none yet",
    "schema": "what is watched",
    "note": "anything worth telling a person",
    "threshold": "score from which a frame is odd enough to alarm",
    "is_alarmed": "whether an event is open at this frame",
    "event_id": "the same from opening to closing, unique for the agent",
    "start_ms": "time of the event's first frame, UTC epoch ms",
    "end_ms": "time of its last frame, UTC epoch ms; null while it is open",
    "frames": "how many frames it spans so far",
    "peak_score": "the highest score so far",
    "peak_ms": "time of the frame with the highest score, UTC epoch ms",
    "deadline_ms": "when an opened round closes, UTC epoch ms",
    "answered": "agents whose summary came in time",
    "missing": "agents that were expected and did not answer",
    "included": "whose knowledge is in the result",
    "bytes_received": "what the round cost the coordinator's line, inwards",
    "bytes_sent": "what the round cost the coordinator's line, outwards",
    "seconds": "how long the round took",
    "action": "what is asked for",
    "incarnation": "changes when the agent lost its memory",
    "sequence": "grows with every message of this kind from one agent",
    "signature": "channels, covariates, interval and lags in one text; equal for all that share knowledge",
    "count": "how many values there were",
    "mean": "their mean, per input, transformed unit",
    "centred_square_sum": "sum of squared differences from the mean, per input",
    "precision": "precision of the weights, by channel",
    "shift": "precision times mean of the weights, by channel",
    "noise_variance": "variance of the noise, by channel",
    "centre": "what is subtracted from an input",
    "scale": "what an input is divided by after that",
    "deviation_scale": "how far an agent may deviate",
    "dtype": "form of one number",
    "data": "the numbers, C order",
    "shape": "length of each dimension",
    "factor": "ageing factor from 0 to 1",
    "unit": "unit of its readings, for people",
    "transform": "applied to its readings before learning",
    "topic": "MQTT topic it arrives on; empty = the agent's default topic",
    "field": "name inside a JSON payload; empty = its own name",
    "channels": "what is predicted",
    "covariates": "what is predicted from",
    "interval_s": "seconds from one frame to the next",
    "position": "covariate that mixed channels are learnt over; empty = the place in the first phase",
    "position_period": "where that position begins anew, 360 of degrees; 0 = its ends are not joined",
    "lags": "how many steps back a prediction looks",
    "state": "where it stands",
    "blame": "share of each channel",
}

_PARTS = (ChannelPrediction, Included, Schema, Channel, Covariate, Tensor)
_WORDS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true or false", bytes: "bytes"}


def markdown() -> str:
    """The text of docs/wire.md. Raises ValueError when a field's meaning is told nowhere."""
    lines = [
        "# What travels on the wire",
        "",
        "Generated by `python -m fleetgp.wire.document` from `fleetgp/wire/messages.py` and `topics.py`; edit those instead.",
        "",
        f"All messages are of version {VERSION}. JSON is UTF-8; MessagePack writes a struct as a map from field names. Both carry",
        "`type`, the message's tag. A reader skips fields it does not know and takes the default of those that are not there;",
        f"it refuses more than {codec.MAX_BYTES:,} bytes, nesting deeper than {codec.MAX_DEPTH}, NaN and infinities, an unknown",
        "tag, a wrong type and a version above its own. Delivery is at least once: a message may come twice or out of order.",
        "",
        "## Topics",
        "",
        "| topic | message | from | to | form | QoS | retained |",
        "|---|---|---|---|---|---|---|",
        *(_route_line(route) for route in ROUTES),
        "",
        "## Messages",
    ]
    for message in ALL:
        lines += ["", *_section(message, f"{message.__name__}: `type` = `{message.__struct_config__.tag}`")]
    lines += ["", "## Parts of messages"]
    for part in _PARTS:
        lines += ["", *_section(part, part.__name__)]
    return "\n".join(lines) + "\n"


def meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """What the docstring of a struct says of its fields: ``name: meaning`` up to the next such name or the end of its sentence."""
    text = " ".join((kind.__doc__ or "").split())
    names = "|".join(sorted(kind.__struct_fields__, key=len, reverse=True))
    group = re.compile(rf"(?:^|(?<=[.;)] ))((?:(?:{names})(?:, )?)+):\s")
    starts = list(group.finditer(text))
    found: dict[str, str] = {}
    ends = [following.start() for following in starts[1:]] + [len(text)]
    for start, end in zip(starts, ends, strict=False):
        meaning = re.split(r"\.\s(?=[A-Z(])", text[start.end() : end])[0].strip(" ;.,")
        for name in start[1].split(", "):
            found[name] = meaning
    return found


def _route_line(route: Route) -> str:
    message = BY_KIND[route.kind]
    form = "JSON" if message.FORM == "json" else "MessagePack"
    retained = "yes" if route.is_retained else "no"
    name = message.__name__
    return (
        f"| `{route.topic}` | [{name}](#{_anchor(message)}) | {route.sender} | {route.receivers} "
        f"| {form} | {route.qos} | {retained} |"
    )


def _section(kind: type[msgspec.Struct], title: str) -> Iterator[str]:
    """Heading, first paragraph of the docstring, and the table of fields."""
    yield f"### {title}"
    yield ""
    yield from (kind.__doc__ or "").strip().split("\n\n")[0].split("\n")
    yield ""
    yield "| field | type | default | meaning |"
    yield "|---|---|---|---|"
    hints = {name: hint for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}
    said = meanings(kind)
    for field in msgspec.structs.fields(kind):
        special, common = said.get(field.name, ""), COMMON.get(field.name, "")
        meaning = f"{common}: {special}" if common and special.startswith("[") else special or common
        if not meaning:
            raise ValueError(f"say what {kind.__name__}.{field.name} means in its docstring, as 'name: meaning'")
        yield f"| `{field.name}` | {_type_words(hints[field.name])} | {_default(field)} | {_cell(meaning)} |"


def _type_words(hint: Any) -> str:
    """A type as a reader in any language understands it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if hint is type(None):
        return "null"
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_type_words(argument) for argument in arguments)
    if origin is tuple:
        return f"list of {_type_words(arguments[0])}"
    if origin is dict:
        return f"map from {_type_words(arguments[0])} to {_type_words(arguments[1])}"
    return f"[{hint.__name__}](#{_anchor(hint)})"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    if field.default is msgspec.NODEFAULT:
        return "required"
    if field.default in ("", ()):
        return "empty"
    return f"`{msgspec.json.encode(field.default).decode()}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


def _anchor(kind: type[msgspec.Struct]) -> str:
    """The anchor of a struct's heading on the usual code hosts."""
    tag = kind.__struct_config__.tag
    return kind.__name__.lower() + (f"-type--{tag}" if tag else "")


if __name__ == "__main__":
    print(markdown(), end="")
