from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a coordinator's journal is to be."""
    return tmp_path / "journal.sqlite"
