"""``fleetgp store``: what is in the history, a copy of it, less of it, and its rows as a file."""

from __future__ import annotations

import json
import os
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from broker_bridge import store_files
from broker_bridge.store_text import pages, size
from fleetgp.errors import ConfigError, StorageError
from fleetgp.runtime.arguments import add_arguments, from_arguments
from fleetgp.runtime.settings import Settings
from fleetgp.runtime.spec import parse_span
from fleetgp.store import sqlite_export, sqlite_prune
from fleetgp.store.sqlite_backup import back_up
from fleetgp.store.sqlite_report import MOST_SERIES, examine
from fleetgp.store.sqlite_retention import retention

KINDS = (*sqlite_prune.SERIES_KINDS, *sqlite_prune.DOCUMENTS)

TASKS = """
  info     [--series N]
  backup   -o FILE [--within SPAN]
  prune    [--older-than SPAN|TIME] [--kind KIND] [--series NAME] [--keep-summaries] [--dry-run] [--yes] [--compact]
  export   -o FILE [--kind KIND] [--series NAME] [--from SPAN|TIME] [--to SPAN|TIME] [--whole]

all of them: [--store FILE] [--json FILE] and the settings of the bridge; fleetgp store TASK --help says more
"""


def build_parser() -> ArgumentParser:
    """All flags of ``fleetgp store``."""
    parser = ArgumentParser(
        prog="fleetgp store",
        description="The history in SQLite: what is in it, a copy of it while the bridge runs, less of it, its rows as a file.",
        epilog=f"tasks:{TASKS}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    tasks = parser.add_subparsers(dest="task", required=True, metavar="info | backup | prune | export")
    info = _task(tasks.add_parser, "info", "size, series, spans and what is kept how long")
    info.add_argument(
        "--series", type=int, default=MOST_SERIES, metavar="N", help="list so many, those with most rows first"
    )
    backup = _task(tasks.add_parser, "backup", "a checked copy, whole at one moment, while the bridge writes")
    backup.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a file that is not there yet")
    backup.add_argument("--within", default="1h", metavar="SPAN", help="give up after that (1h)")
    prune = _task(tasks.add_parser, "prune", "drop what is old, or whole series; the bridge may run")
    prune.add_argument("--older-than", metavar="SPAN|TIME", help="90d, 12h or 2026-01-31; without it whole series go")
    _pick(prune, KINDS, "readings, predictions and health")
    prune.add_argument(
        "--keep-summaries", action="store_true", help="drop single rows, keep those of a minute and an hour"
    )
    prune.add_argument("--dry-run", action="store_true", help="say what would go, and do nothing")
    prune.add_argument("--yes", action="store_true", help="do it; without it nothing is dropped")
    prune.add_argument(
        "--compact", action="store_true", help="then give the room back to the disk; writes wait meanwhile"
    )
    export = _task(tasks.add_parser, "export", "rows as CSV, JSONL or Parquet, as backtest reads them")
    export.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help=f"ends in {', '.join(store_files.ENDINGS)}"
    )
    _pick(export, sqlite_prune.SERIES_KINDS, "readings")
    export.add_argument("--from", dest="since", metavar="SPAN|TIME", help="30d ago, or 2026-01-31T12:00 (UTC)")
    export.add_argument("--to", dest="until", metavar="SPAN|TIME", help="the same")
    export.add_argument("--whole", action="store_true", help="also when each row was received, and its sender's count")
    return parser


def _task(add: Callable[..., ArgumentParser], name: str, text: str) -> ArgumentParser:
    parser = add(name, help=text, description=text)
    parser.add_argument("--store", type=Path, metavar="FILE", help="the history (setting store.path)")
    parser.add_argument("--json", metavar="FILE", help="write what is said to a file ('-' = standard output)")
    add_arguments(parser)
    return parser


def _pick(parser: ArgumentParser, kinds: Sequence[str], default: str) -> None:
    parser.add_argument(
        "--kind", action="append", choices=kinds, help=f"{', '.join(kinds)}; may be repeated ({default})"
    )
    parser.add_argument("--series", action="append", default=[], metavar="NAME", help="only this one; may be repeated")


def run(argv: list[str]) -> int:
    """Do what the flags say. Raises FleetError."""
    args = build_parser().parse_args(argv)
    settings = from_arguments(args, os.environ)
    path = _path(args, settings)
    tasks: dict[str, Callable[[Namespace, Path, Settings], int]] = {
        "info": _info,
        "backup": _backup,
        "prune": _prune,
        "export": _export,
    }
    return tasks[args.task](args, path, settings)


def _path(args: Namespace, settings: Settings) -> Path:
    if args.store is not None:
        return Path(args.store).expanduser()
    if settings.values.get("store.kind", "sqlite") != "sqlite":
        raise ConfigError("store.kind", "this command is for a history in SQLite; name its file with --store")
    from fleetgp.store.open import history_path

    return history_path(settings)


def _info(args: Namespace, path: Path, settings: Settings) -> int:
    report = examine(path, max(0, args.series))
    kept = retention(settings)
    _tell(args, {**asdict(report), "rows": report.rows, "kept": asdict(kept)}, pages(report, kept))
    return 0


def _backup(args: Namespace, path: Path, settings: Settings) -> int:
    within_s = parse_span(args.within, "--within", "")
    done = back_up(path, args.output, within_s=within_s)
    told = {"file": str(done.path), "bytes": done.bytes, "rows": done.rows, "seconds": round(done.seconds, 3)}
    _tell(args, told, [f"{done.path}: {done.rows:,} rows, {size(done.bytes / 1e6)}, checked, in {done.seconds:.1f} s"])
    return 0


def _prune(args: Namespace, path: Path, settings: Settings) -> int:
    if args.older_than is None and not (args.series or args.kind or args.compact):
        raise ConfigError("--older-than", "say what is to go: --older-than 90d, --series NAME or --kind KIND")
    if args.keep_summaries and args.older_than is None:
        raise ConfigError("--keep-summaries", "goes with --older-than: what else is removed is removed whole")
    if args.older_than is None and not (args.series or args.kind):
        victims: list[sqlite_prune.Doomed] = []  # --compact alone
        choice = sqlite_prune.Choice(())
    else:
        kinds = tuple(args.kind or sqlite_prune.SERIES_KINDS)
        before_ms = None if args.older_than is None else moment_ms(args.older_than, "--older-than")
        choice = sqlite_prune.Choice(kinds, tuple(args.series), before_ms, args.keep_summaries)
        victims = sqlite_prune.doomed(path, choice)
    lines = [_sentence(one, choice) for one in victims] or ([] if args.compact else ["nothing is that old"])
    told: dict[str, object] = {"victims": [asdict(one) for one in victims], "is_done": False}
    is_wanted = bool(victims or args.compact) and not args.dry_run
    if is_wanted and not args.yes:
        _tell(args, told, [*lines, "nothing was dropped yet: say --yes to do it"])
        return 1
    if is_wanted:
        gone = sqlite_prune.prune(path, choice, victims) if victims else {}
        lines += [f"dropped {count:,} rows of {kind}" for kind, count in gone.items()]
        told = {**told, "is_done": True, "dropped": gone}
        if args.compact:
            before, after = sqlite_prune.compact(path)
            told |= {"bytes_before": before, "bytes_after": after}
            lines.append(f"the file had {size(before / 1e6)} and has {size(after / 1e6)} now")
        elif victims:
            lines.append("the file keeps its size, its free room is used again; --compact gives it back to the disk")
    _tell(args, told, lines)
    return 0


def _sentence(one: sqlite_prune.Doomed, choice: sqlite_prune.Choice) -> str:
    what = f"{one.kind} {one.name}".strip()
    span = f"{store_files.time_text(one.first_ms)} to {store_files.time_text(one.until_ms)}"
    if one.kind in sqlite_prune.DOCUMENTS:
        return f"{what}: {one.rows:,} from {span}"
    if one.is_whole:
        return f"{what}: whole, {one.rows:,} rows and their summaries from {span}"
    return f"{what}: {one.rows:,} rows{'' if choice.keeps_rollups else ' and their summaries'} from {span}"


def _export(args: Namespace, path: Path, settings: Settings) -> int:
    kinds = args.kind or ["reading"]
    if len(kinds) > 1:
        raise ConfigError("--kind", "an export holds one kind; write one file for each")
    part = sqlite_export.Part(kind=kinds[0], names=tuple(args.series))
    bounds = {"start_ms": args.since, "end_ms": args.until}
    limits = {key: moment_ms(text, "--from" if key == "start_ms" else "--to") for key, text in bounds.items() if text}
    part = sqlite_export.Part(kind=part.kind, names=part.names, **limits)
    store_files.form_of(args.output)
    wanted = sqlite_export.columns(path, part)
    if not wanted:
        raise StorageError(f"the history store {path} has no {part.kind} series; fleetgp store info says what it has")
    count = store_files.write(args.output, wanted, sqlite_export.raw_rows(path, part, wanted), args.whole)
    length = args.output.stat().st_size
    told: dict[str, object] = {"file": str(args.output), "rows": count, "columns": wanted, "bytes": length}
    _tell(args, told, [f"{args.output}: {count:,} rows of {len(wanted)} columns, {size(length / 1e6)}"])
    return 0


def moment_ms(text: str, flag: str, now_s: Callable[[], float] = time.time) -> int:
    """UTC epoch ms of a date and time (UTC where it names no zone) or of so long ago. Raises ConfigError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    try:
        span_s = parse_span(text, flag, "")
    except ConfigError:
        raise ConfigError(
            flag, f"expected a span such as 90d or 12h, or a time such as 2026-01-31, got {text!r}"
        ) from None
    return round((now_s() - span_s) * 1000)


def _tell(args: Namespace, told: dict[str, object], lines: Sequence[str]) -> None:
    if args.json != "-":
        print("\n".join(lines))
    if not args.json:
        return
    text = json.dumps(told, indent=2)
    if args.json == "-":
        print(text)
        return
    try:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    except OSError as err:
        raise ConfigError("--json", f"cannot write {args.json}: {err.strerror or err}") from err
