"""The time inside a payload, moved: a JSON object's own time at the top. All other bytes stay as they are."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from fleetgp.payloads.json import TIME_KEYS

_TIME = re.compile(rb'("(?:' + b"|".join(key.encode() for key in TIME_KEYS) + rb')"\s*:\s*)(\d+|"[^"]*")')


def move_time(payload: bytes, topic: str, shift_ms: int) -> bytes:
    """The same payload with its times moved; unchanged where it has none."""
    match = _TIME.search(payload)
    if match is None:
        return payload
    if match[2].startswith(b'"'):
        try:
            moment = datetime.fromisoformat(match[2].decode()[1:-1]) + timedelta(milliseconds=shift_ms)
        except ValueError:
            return payload
        new = f'"{moment.isoformat()}"'.encode()
    else:
        count = int(match[2])
        scale = next(scale for limit, scale in ((1e11, 1e-3), (1e14, 1.0), (1e17, 1e3), (1e30, 1e6)) if count < limit)
        new = str(count + round(shift_ms * scale)).encode()
    return payload[: match.start(2)] + new + payload[match.end(2) :]
