"""What a run left out, by reason, in words that say what was counted."""

from __future__ import annotations

from collections.abc import Mapping

WORDS = {
    "late": "late readings",
    "duplicate": "readings that came twice",
    "clock_reset": "times the clock went back for good",
    "numerical": "frames without a finite result",
    "outside_transform": "readings outside their transform",
    "basis_refused": "models of the fleet that did not fit",
    "bad_time": "rows without a readable time",
    "bad_line": "lines that cannot be read",
    "short_row": "rows cut short",
    "not_a_number": "cells that are no number",
    "no_device": "rows that name no device",
    "retained": "messages kept by the broker from earlier",
    "fleet": "messages of the fleet's own",
    "attribute": "messages that describe a device or the broker ($ topics)",
    "no_number": "messages on topics without numbers",
    "other_device": "messages of devices left out",
    "no_known_field": "messages without a channel's field",
    "gap": "gaps in the recording",
    "damaged": "damaged places in the file",
    "lost": "messages lost in damaged places",
    "cut": "files cut short",
    "cut_line": "last lines cut short",
    "payload_cut": "messages not as long as told",
    "long_line": "lines too long",
    "empty": "empty messages",
    "encoding": "messages in no known format",
    "syntax": "messages that are broken JSON",
    "text": "messages of text",
    "range": "messages of numbers beyond any reading",
    "size": "messages too large",
    "depth": "messages nested too deep",
    "fields": "messages of too many fields",
    "time": "times that cannot be read",
    "field_text": "fields of text",
    "field_range": "fields of numbers beyond any reading",
    "columns": "columns that hold no numbers",
    "other topics": "messages on other topics",
    "other times": "messages of other times",
}


def words(counts: Mapping[str, int]) -> str:
    """``left out: late readings 3, rows cut short 1``; "" where nothing was."""
    if not counts:
        return ""
    told = sorted((WORDS.get(reason, reason), number) for reason, number in counts.items())
    return "left out: " + ", ".join(f"{what} {number:,}" for what, number in told)
