"""From UTC to what a clock on the wall shows."""

from __future__ import annotations

import pandas as pd

from fleetgp.arrays import Array


def local_times(at_ms: Array, zone: str) -> pd.DatetimeIndex:
    """Times as a clock on the wall of that zone shows them."""
    return pd.to_datetime(at_ms, unit="ms", utc=True).tz_convert(zone).tz_localize(None)
