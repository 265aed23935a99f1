"""The arithmetic of what a day's writing comes to, on a short span, against the files themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import writing
from edge_agent.memory import Memory


def test_a_day_is_so_many_spans_of_journal_and_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 s of a frame a second, rounds every 20 s: bytes are those of the journal when it ended, and of the snapshot."""
    monkeypatch.setattr(writing, "WARM_FRAMES", 64)
    monkeypatch.setattr(writing, "WARM_ROUNDS", 4)
    sizes: list[tuple[int, int]] = []
    save = Memory.save

    def watched(memory: Memory) -> None:
        journal = memory.size_bytes
        save(memory)
        sizes.append((journal, Path(memory._snapshot).stat().st_size))

    monkeypatch.setattr(Memory, "save", watched)
    found = writing.measure(1.0, round_s=20.0, span_s=40.0)
    journal, size = sizes[-1]
    assert found.snapshot_bytes == size
    assert found.snapshots == pytest.approx(86_400 / 40)
    # eight bytes at the beginning of a journal stay there
    assert found.bytes == pytest.approx(86_400 / 40 * (journal - 8 + size))
    assert found.replay_s > 0


def test_a_fast_stream_is_saved_by_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where frames come so fast that a replay would take too long, the span ends with the frame that makes it so."""
    monkeypatch.setattr(writing, "WARM_FRAMES", 64)
    monkeypatch.setattr(writing, "WARM_ROUNDS", 4)
    monkeypatch.setattr("edge_agent.memory.JOURNAL_MOST_BYTES", 4_000)
    found = writing.measure(10.0, round_s=60.0, span_s=1_000.0)
    frames = 10.0 * writing.DAY_S / found.snapshots
    assert 20 <= frames <= 30  # of about 150 bytes each
