"""Messages as they were when first released: read today as then, written today byte for byte as then, and by strangers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
import second_reader
from golden_messages import AT_MS, GOLDEN, READ_ONLY

from fleetgp.wire import messages
from fleetgp.wire.codec import decode, encode

FOLDER = Path(__file__).parent / "golden"
READ = {**GOLDEN, **READ_ONLY}


def _plain(value: Any) -> Any:
    """What any reader in any language should see: maps, lists, texts and numbers. Channels leave defaults out."""
    if isinstance(value, msgspec.Struct):
        fields = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
        if value.__struct_config__.omit_defaults:
            defaults = {field.name: field.default for field in msgspec.structs.fields(value)}
            fields = {name: item for name, item in fields.items() if item != defaults[name]}
        tag = value.__struct_config__.tag
        return {"type": tag, **fields} if tag else fields
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def test_every_message_has_a_golden_file() -> None:
    """A message added without one would be free to change."""
    assert {type(message) for message in GOLDEN.values()} == set(messages.ALL)
    assert {path.name for path in FOLDER.iterdir()} == set(READ)


def test_every_field_has_been_written_in_some_golden_file_at_no_default() -> None:
    """One that is at its default everywhere could be dropped, or be read as another, and no test would see."""
    shown: dict[type, set[str]] = {}
    for message in READ.values():
        for value in _structs(message):
            fields = msgspec.structs.fields(value)
            told = {field.name for field in fields if getattr(value, field.name) != field.default}
            shown.setdefault(type(value), set()).update(told)
    for kind, told in shown.items():
        constant = {"version"} if issubclass(kind, messages.Message) else {"dtype"}
        assert told | constant >= set(kind.__struct_fields__), kind.__name__


def _structs(value: Any) -> list[msgspec.Struct]:
    """A message and every struct inside it."""
    if isinstance(value, msgspec.Struct):
        return [value, *(one for name in value.__struct_fields__ for one in _structs(getattr(value, name)))]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return [one for item in inside for one in _structs(item)]


@pytest.mark.parametrize("name", READ)
def test_golden_bytes_are_read_as_they_were_meant(name: str) -> None:
    assert decode((FOLDER / name).read_bytes(), type(READ[name])) == READ[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_messages_are_still_written_as_golden_bytes(name: str) -> None:
    assert encode(GOLDEN[name]) == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", GOLDEN)
def test_a_second_reader_sees_the_same(name: str) -> None:
    """The standard library's JSON, or a MessagePack reader from the specification, finds every field and number."""
    content = (FOLDER / name).read_bytes()
    seen = json.loads(content) if name.endswith(".json") else second_reader.read(content)
    assert seen == _plain(GOLDEN[name])
    assert seen["at_ms"] == AT_MS
    assert seen["version"] == 1


@pytest.mark.parametrize("name", READ_ONLY)
def test_a_second_reader_sees_of_an_earlier_form_what_is_still_meant(name: str) -> None:
    """Every field that is in the file is there today, with the same value; those added since stand at their defaults."""
    content = (FOLDER / name).read_bytes()
    seen = json.loads(content) if name.endswith(".json") else second_reader.read(content)
    assert _is_part(seen, _plain(READ_ONLY[name]))


def _is_part(old: Any, new: Any) -> bool:
    if isinstance(old, dict):
        return all(name in new and _is_part(item, new[name]) for name, item in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(_is_part(a, b) for a, b in zip(old, new, strict=True))
    return bool(old == new)


def test_a_second_reader_sees_the_numbers_of_a_tensor() -> None:
    """Little-endian doubles in C order, negative zero and extremes included."""
    seen: Any = second_reader.read((FOLDER / "summary-v1.bin").read_bytes())
    assert seen["precision"]["shape"] == [2, 3]
    assert seen["precision"]["dtype"] == "<f8"
    assert struct.unpack("<6d", seen["precision"]["data"]) == (2.0, -0.5, 3.0, 4.0, 0.0, 1e300)
    assert seen["shift"]["data"][-8:] == bytes(7) + b"\x80"
