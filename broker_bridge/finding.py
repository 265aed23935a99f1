"""What ``fleetgp doctor`` reports: one finding a check."""

from __future__ import annotations

from typing import Literal, NamedTuple

Verdict = Literal["ok", "warning", "fault"]


class Finding(NamedTuple):
    """One check: what was looked at, how it stands, what was seen, and what to do where it is not well."""

    check: str
    verdict: Verdict
    seen: str
    advice: str = ""
