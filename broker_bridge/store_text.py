"""What ``fleetgp store info`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_bridge.store_files import time_text
from fleetgp.store.sqlite_report import KindReport, Report, SeriesReport
from fleetgp.store.sqlite_retention import Kept, Retention


def size(megabytes: float) -> str:
    """``12.3 MB``, ``4.56 GB``."""
    return f"{megabytes / 1000:.2f} GB" if megabytes >= 1000 else f"{megabytes:.1f} MB"


def pages(report: Report, kept: Retention) -> list[str]:
    """Lines on a store."""
    spare = f", of it {size(report.free_mb)} free" if report.free_mb >= 0.1 else ""
    log = f", and {size(report.log_mb)} of log beside it" if report.log_mb else ""
    lines = [f"{report.location}: {size(report.file_mb)}{spare}{log}; form {report.version}", ""]
    lines += _table(("kind", "series", "rows", "oldest", "newest", "kept"), [_kind(one, kept) for one in report.kinds])
    lines += ["", *_waiting(report)]
    if report.largest:
        heads = ("largest series", "kind", "channels", "rows", "oldest", "rows from", "minutes from", "newest")
        lines += ["", *_table(heads, [_series(one) for one in report.largest])]
    total = sum(one.series for one in report.kinds)
    if total > len(report.largest):
        lines.append(f"... and {total - len(report.largest)} more (--series {total} lists all)")
    return lines


def _kind(one: KindReport, kept: Retention) -> tuple[str, ...]:
    days = {
        "reading": _days(kept.reading),
        "prediction": _days(kept.prediction),
        "health": _days(kept.health),
        "event": _limit(kept.event_days),
        "round": _limit(kept.round_days),
    }[one.kind]
    return (
        one.kind,
        f"{one.series:,}" if one.series else "",
        f"{one.rows:,}",
        _when(one.first_ms),
        _when(one.last_ms),
        days,
    )


def _days(kept: Kept) -> str:
    return f"rows {kept.raw_days:g}, minutes {kept.minute_days:g}, hours {kept.hour_days:g} days"


def _limit(days: float) -> str:
    return f"{days:g} days" if days else "the newest 100,000"


def _waiting(report: Report) -> list[str]:
    if report.version == 1:
        return ["form 1 has no summaries of an hour: they are made once the bridge of this version runs"]
    series_count = sum(one.series for one in report.kinds)
    words = {
        "minutes": "minutes to be summed up",
        "hours": "hours to be summed up",
        "series_without_hours": "series whose hours are still to be made",
        "series_being_removed": "removed series whose rows are still going",
    }
    # the newest minute and hour of a series are never summed up yet
    usual = {"minutes": series_count, "hours": series_count}
    found = [f"{n:,} {text}" for key, text in words.items() if (n := report.waiting.get(key, 0)) > usual.get(key, 0)]
    return [f"waiting: {', '.join(found)}" if found else "all minutes and hours but the newest are summed up"]


def _series(one: SeriesReport) -> tuple[str, ...]:
    floors = ("all" if ms is None else _when(ms) for ms in (one.raw_from_ms, one.minutes_from_ms))
    return one.name, one.kind, f"{one.channels:,}", f"{one.rows:,}", _when(one.first_ms), *floors, _when(one.last_ms)


def _when(at_ms: int | None) -> str:
    return "-" if at_ms is None else time_text(at_ms)[:16].replace("T", " ")


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    numbers = {i for i, head in enumerate(heads) if head in ("series", "rows", "channels")}
    return [
        "  ".join(
            text.rjust(w) if i in numbers else text.ljust(w)
            for i, (text, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
