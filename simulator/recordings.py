"""The ``recordings`` command: list, describe, check, save and convert recorded files. Light: work is imported when it is done."""

from __future__ import annotations

import argparse
from pathlib import Path

from fleetgp.runtime.arguments import add_arguments


def recordings(argv: list[str]) -> int:
    """list, describe, check, save and convert recorded files"""
    args = _parser().parse_args(argv)

    from simulator import run_recordings

    return run_recordings.RUN[args.action](args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fleetgp recordings",
        description="Looks after recorded files: MCAP as fleetgp record writes it, lines of JSON, logs of mosquitto_sub,\n"
        "and tables (CSV, Parquet, JSON).",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", metavar="FILE", help="write what was found to a file ('-' = standard output)")
    listing = actions.add_parser("list", parents=[shared], help="files of a folder: form, times, messages, size")
    listing.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="which folder (this one)")
    info = actions.add_parser("info", parents=[shared], help="topics, counts, rates, gaps and session of a file")
    info.add_argument("file", type=Path, metavar="FILE")
    verify = actions.add_parser("verify", parents=[shared], help="check a file; exit status 1 where it is damaged")
    verify.add_argument("file", type=Path, metavar="FILE")
    for action in (info, verify):
        action.add_argument("--spec", type=Path, metavar="SPEC", help="what a table holds")
    recover = actions.add_parser(
        "recover", parents=[shared], help="save what a damaged file still holds into a new one"
    )
    recover.add_argument("file", type=Path, metavar="FILE")
    _add_output(recover, ".mcap, .jsonl or .jsonl.gz")
    convert = actions.add_parser(
        "convert",
        parents=[shared],
        help="write a file in another form, or a part of it",
        description="Writes a recording in the form that OUT's ending says: .mcap, .jsonl, .jsonl.gz keep every message; .csv, "
        ".csv.gz, .parquet hold readings, a row a message with its time, its device and its fields.",
    )
    convert.add_argument(
        "file",
        type=_place,
        metavar="IN",
        help="any form, told by its content; or http://HOST:8086/DATABASE with --query",
    )
    convert.add_argument(
        "output", type=Path, metavar="OUT", help="ends in .mcap, .jsonl, .csv (each also with .gz), .parquet"
    )
    convert.add_argument("--query", metavar="SELECT", help="which rows of an InfluxDB, e.g. 'SELECT * FROM weather'")
    _add_choices(convert)
    add_arguments(convert)
    query = actions.add_parser(
        "query",
        parents=[shared],
        help="save the answer to an InfluxQL query as a recording",
        description="Asks the InfluxDB that the [store] settings name, or --store, and writes each row as a message: those of a "
        "bridge's history as their devices sent them, others as sensors/NAME with NAME made of their tags.",
    )
    query.add_argument("query", metavar="SELECT", help='e.g. "SELECT * FROM fleetgp_reading WHERE time > now() - 1d"')
    query.add_argument("--store", metavar="URL", help="http://HOST:8086/DATABASE (settings store.url, store.database)")
    _add_output(query, ".mcap, .jsonl or .jsonl.gz")
    add_arguments(query)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    usages = (
        action.format_usage().removeprefix("usage: ") for action in (listing, info, verify, recover, convert, query)
    )
    parser.epilog = "\n".join(usages)
    return parser


def _place(text: str) -> Path | str:
    return text if text.startswith(("http://", "https://")) else Path(text)


def _add_output(parser: argparse.ArgumentParser, endings: str) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help=f"a new file: {endings}")
    parser.add_argument("--force", action="store_true", help="replace OUT where it is there already")


def _add_choices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", action="append", default=[], metavar="FILTER", help="only these, e.g. 'sensors/#'")
    parser.add_argument("--from", dest="begin", metavar="T", help="from this time on: 2026-03-04T10:00 (UTC) or +10min")
    parser.add_argument("--to", dest="end", metavar="T", help="up to this time, which is left out")
    parser.add_argument("--spec", type=Path, metavar="SPEC", help="what a table holds; which channels a table gets")
    parser.add_argument(
        "--inject", action="append", default=[], metavar="FAULT", help="put a fault in; docs/faults.md has the words"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the faults' chances (0)")
    parser.add_argument("--start", metavar="T", help="when a log of mosquitto_sub without times began")
    parser.add_argument("--every", metavar="SPAN", help="how far its lines are apart, e.g. 1s")
    parser.add_argument("--force", action="store_true", help="replace OUT where it is there already")
