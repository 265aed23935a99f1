"""The same readings in every form that is read: the same report, to the last digit."""

from __future__ import annotations

import csv
import gzip
import json
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from simulated_streams import SPEC, records

from fleetgp.recording.jsonl import write_jsonl
from fleetgp.recording.mcap import McapWriter
from fleetgp.recording.message import Message
from fleetgp.recording.streams import as_messages
from fleetgp.recording.table import Record
from simulator.backtest import backtest
from simulator.devices import CHANNELS, Device

NAMES = ("pump-1", "pump-2")
FIELDS = [channel.name for channel in CHANNELS]
STREAMS = {name: list(records(Device(name, seed), 0, 70)) for seed, name in enumerate(NAMES)}


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def by_time() -> list[tuple[str, Record]]:
    rows = [(name, record) for name, stream in STREAMS.items() for record in stream]
    return sorted(rows, key=lambda row: row[1].at_ms)


def row(record: Record) -> dict[str, float | int]:
    return {"time": record.at_ms, **dict(zip(FIELDS, record.values, strict=True))}


def messages() -> list[Message]:
    """As ``fleetgp devices`` sends them; received late, among what is no reading of a device."""
    found = [Message("sensors/pump-1", b'{"temperature": 1, "time": 5}', 1, is_retained=True)]
    for k, (name, record) in enumerate(by_time()):
        payload = json.dumps({**row(record), "seq": k}).encode()
        found.append(Message(f"sensors/{name}", payload, record.at_ms * 1_000_000 + 250_000_000))
        found.append(Message(f"fleetgp/demo/agents/{name}/health", b'{"temperature": 3}', found[-1].received_ns))
    return found


def separate(folder: Path, write: Callable[[Path, list[Record]], None], ending: str) -> list[Path]:
    paths = [folder / f"{name}{ending}" for name in NAMES]
    for path, stream in zip(paths, STREAMS.values(), strict=True):
        write(path, stream)
    return paths


def as_csv(folder: Path) -> list[Path]:
    def write(path: Path, stream: list[Record]) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time", *FIELDS])
            writer.writerows([[iso(record.at_ms), *record.values] for record in stream])

    return separate(folder, write, ".csv")


def as_spreadsheet(folder: Path) -> list[Path]:
    """Semicolons and decimal commas, in UTF-16, packed."""

    def write(path: Path, stream: list[Record]) -> None:
        lines = [";".join(["time", "Außen", *FIELDS])]
        lines += [";".join([iso(r.at_ms), "ä", *(str(value).replace(".", ",") for value in r.values)]) for r in stream]
        path.write_bytes(gzip.compress("\r\n".join(lines).encode("utf-16")))

    return separate(folder, write, ".csv.gz")


def as_one_table(folder: Path) -> list[Path]:
    path = folder / "both.csv"
    lines = [",".join(["device_id", "time", *FIELDS])]
    lines += [",".join([name, iso(record.at_ms), *map(str, record.values)]) for name, record in by_time()]
    path.write_text("\n".join(lines))
    return [path]


def as_parquet(folder: Path) -> list[Path]:
    """One table of both, one after the other, in small groups of rows; the name as a dictionary, the time with a zone."""
    rows = [(name, record) for name, stream in STREAMS.items() for record in stream]
    columns: dict[str, Any] = {
        "time": pa.array([record.at_ms for _, record in rows], pa.timestamp("ms", "Europe/Berlin")),
        "sensor": pa.array([name for name, _ in rows]).dictionary_encode(),
    }
    columns |= {field: pa.array([record.values[k] for _, record in rows]) for k, field in enumerate(FIELDS)}
    parquet.write_table(pa.table(columns), folder / "both.parquet", row_group_size=37)
    return [folder / "both.parquet"]


def as_lines(folder: Path) -> list[Path]:
    def write(path: Path, stream: list[Record]) -> None:
        path.write_text("".join(json.dumps(row(record)) + "\n" for record in stream))

    return separate(folder, write, ".jsonl")


def as_message_lines(folder: Path) -> list[Path]:
    write_jsonl(folder / "broker.jsonl.gz", messages())
    return [folder / "broker.jsonl.gz"]


def as_mcap(folder: Path) -> list[Path]:
    """In two files, as a recorder that begins a new one now and then leaves them."""
    paths = [folder / "broker-1.mcap", folder / "broker-2.mcap"]
    for path, part in zip(paths, (messages()[:100], messages()[100:]), strict=True):
        with McapWriter(path, {}) as writer:
            for message in part:
                writer.write(message)
    return paths[::-1]


def as_mosquitto_log(folder: Path) -> list[Path]:
    path = folder / "sub.log"
    lines = [
        f"{message.received_ns // 10**9}.{message.received_ns % 10**9:09d} {message.topic} 0 {int(message.is_retained)} "
        f"{message.payload.decode()}\n"
        for message in messages()[1:]
    ]
    path.write_text("".join(lines))
    return [path]


def as_converted(folder: Path) -> list[Path]:
    """A table as messages, then those as a recording."""
    write_jsonl(folder / "converted.jsonl", as_messages(as_one_table(folder)[0]))
    return [folder / "converted.jsonl"]


def as_single_values(folder: Path) -> list[Path]:
    """Each channel on a topic of its own, in turn, as small devices send them; their time is that of their arrival."""
    found = [
        Message(f"plant/{name}/{field}", str(record.values[k]).encode(), record.at_ms * 1_000_000)
        for name, record in by_time()
        for k, field in enumerate(FIELDS)
    ]
    write_jsonl(folder / "values.jsonl", found)
    return [folder / "values.jsonl"]


def report(paths: list[Path], folder: Path) -> dict[str, Any]:
    spec = folder / "spec.toml"
    spec.write_text(SPEC)
    args = Namespace(
        files=paths, spec=spec, model=[], mode=None, start=None, end=None, join=[], round="10s", json="-", tuning="on"
    )
    return backtest(args)


SAME = ("overall", "agents", "channels", "by_agent_channel", "frames", "rounds_closed", "bytes_per_round", "event_list")


@pytest.mark.parametrize(
    "write",
    [
        as_spreadsheet, as_one_table, as_parquet, as_lines, as_message_lines, as_mcap, as_mosquitto_log, as_converted,
    ],
)  # fmt: skip
def test_every_form_gives_the_report_of_plain_tables(tmp_path: Path, write: Callable[[Path], list[Path]]) -> None:
    expected = report(as_csv(tmp_path), tmp_path)
    assert expected["frames"] == 140
    assert list(expected["agents"]) == list(NAMES)
    found = report(write(tmp_path), tmp_path)
    assert {key: found[key] for key in SAME} == {key: expected[key] for key in SAME}
    others = {reason: count for reason, count in found["left_out"].items() if reason not in ("retained", "fleet")}
    assert others == {}
    if write in (as_message_lines, as_mcap):
        assert found["left_out"] == {"retained": 1, "fleet": 140}


def test_channels_that_come_one_by_one_are_frames_of_all(tmp_path: Path) -> None:
    """Four messages to a frame: all is the same, and counted as such."""
    expected, found = report(as_csv(tmp_path), tmp_path), report(as_single_values(tmp_path), tmp_path)
    assert {key: found[key] for key in SAME} == {key: expected[key] for key in SAME}
    assert found["left_out"] == {}
