"""What tests of the coordinator's journal share: the files of a journal, and what a kill leaves of them."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from synthetic_agents import CONFIG, START_MS, story

from coordinator import rounds

FRESH = rounds.init(CONFIG, START_MS)
STORY = story()


def killed(path: Path, where: Path) -> Path:
    """The files as a kill at this moment would leave them, in another folder."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, where / file.name)
    return where / path.name


def rows(path: Path, question: str) -> int:
    db = sqlite3.connect(path)
    (answer,) = db.execute(question).fetchone()
    db.close()
    return int(answer)
