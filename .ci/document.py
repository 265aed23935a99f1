"""Write docs/settings.md and docs/wire.md from the code; with ``--check`` only say whether they are in step.

Exit status 0: written, or in step; 1: out of step (``make docs`` mends that).
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fleetgp.runtime import settings
from fleetgp.wire import codec, messages, topics

DOCS = Path(__file__).parent.parent / "docs"
FORMS = {"json": "JSON", "msgpack": "MessagePack"}
HEAD = "<!-- Made by `make docs` from the code: edit that, not this. -->\n\n"


def wire() -> str:
    """The page on topics and messages."""
    parts = [
        "# What travels between the programs\n",
        f"All topics start with `{topics.ROOT}/<fleet>/`; ids are letters, digits, `_` and `-`. Every message names its "
        f"`type` and the `version` of its form (now {messages.VERSION}); a reader skips fields it does not know and refuses "
        f"a version above its own, more than {codec.MAX_BYTES:,} bytes, JSON nested deeper than {codec.MAX_DEPTH}, and "
        "numbers that are not finite. Times (`at_ms`) are UTC milliseconds since 1970.\n",
        "| topic | message | form |\n|---|---|---|",
    ]
    parts += [f"| `{topic}` | [{kind}](#{kind}) | {FORMS[struct.FORM]} |" for topic, kind, struct in _routes()]
    for struct in messages.ALL:
        parts.append(_section(struct, str(struct.__struct_config__.tag)))
    parts.append("\n# Parts of messages")
    parts += [_section(part, part.__name__) for part in _parts()]
    return HEAD + "\n".join(parts) + "\n"


def _routes() -> Iterator[tuple[str, str, type[messages.Message]]]:
    """(topic, tag of the message, struct) for everything that travels."""
    places = [
        *((topics.agent("<fleet>", "<id>", kind), kind) for kind in topics.AGENT_KINDS),
        *((topics.service("<fleet>", "<name>", kind), kind) for kind in topics.SERVICE_KINDS),
        *((topics.fleet_wide("<fleet>", kind), kind) for kind in topics.FLEET_KINDS),
        (topics.commands("<fleet>", "<id>"), "command"),
    ]
    for topic, kind in places:
        struct = messages.BY_KIND[kind]
        yield topic, str(struct.__struct_config__.tag), struct


def _section(struct: type[msgspec.Struct], title: str) -> str:
    """Heading, docstring and table of fields of one struct."""
    lines = [f"\n## {title}\n", inspect.getdoc(struct) or "", "", "| field | type | default |", "|---|---|---|"]
    for field in msgspec.structs.fields(struct):
        lines.append(f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} |")
    return "\n".join(lines)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    return "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"


def _type(kind: object) -> str:
    """A type in plain words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is dict:
        return f"map of {_type(arguments[0])} to {_type(arguments[1])}"
    if origin in (tuple, list):
        return f"list of {_type(arguments[0])}"
    if kind is type(None):
        return "null"
    return getattr(kind, "__name__", str(kind))


def _parts() -> list[type[msgspec.Struct]]:
    """Structs inside messages, each once, in the order in which they are first met."""
    found: dict[type[msgspec.Struct], None] = {}
    waiting: list[object] = list(messages.ALL)
    while waiting:
        kind = waiting.pop(0)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            inner = [field.type for field in msgspec.structs.fields(kind)]
            if kind not in messages.ALL and kind not in found:
                found[kind] = None
            elif kind in found:
                continue
            waiting += inner
        else:
            waiting += typing.get_args(kind)
    return list(found)


def main() -> int:
    """Write, or check, both pages."""
    pages = {"settings.md": settings.markdown(), "wire.md": wire()}
    stale = [name for name, text in pages.items() if not _holds(DOCS / name, text)]
    if "--check" not in sys.argv[1:]:
        for name in stale:
            (DOCS / name).write_text(pages[name], encoding="utf-8")
        print(f"written: {', '.join(stale) or 'nothing, all in step'}")
        return 0
    print("\n".join(f"docs/{name} is not in step with the code: run make docs" for name in stale) or "docs in step")
    return 1 if stale else 0


def _holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
