"""What an agent writes to its disk in a day, and how long a kill makes the next start take.

Brain and memory as they run, on a clock that is counted instead of waited for: from one snapshot to the next, and that as often
as a day has room for it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from benchmarks import agent_stream as stream
from benchmarks.report import Bar, Report, finish, parser
from coordinator import rounds
from coordinator import state as coordination
from edge_agent import agent
from edge_agent.frames import Sample
from edge_agent.memory import SNAPSHOT, Memory
from edge_agent.state import AgentConfig, Event, ModelArrived, Publish, Readings, RoundOpened
from fleetgp.runtime.logs import Log
from fleetgp.runtime.settings_table import SETTINGS
from fleetgp.wire import codec

BARS = (
    Bar("writing.snapshot_mb", "<=", 1.75),
    Bar("writing.mb_a_day", "<=", 300),
    Bar("writing.replay_s", "<=", 10),
)
DAY_S = 86_400
# until the fleet has placed its inducing inputs and the state is as large as it gets
WARM_FRAMES, WARM_ROUNDS = 1_024, 16
# frames a second; the bars are for the second
PACES = (1 / 60, 1.0, 10.0)
JUDGED = 1.0


class Writing(NamedTuple):
    """snapshot_bytes: of one. snapshots, bytes: what a day comes to. replay_s: what a kill costs at most at the next start."""

    snapshot_bytes: int
    snapshots: float
    bytes: float
    replay_s: float


def default(name: str) -> float:
    return float(next(one.default for one in SETTINGS if one.name == name))


def measure(per_s: float, seed: int = 0, round_s: float | None = None, span_s: float | None = None) -> Writing:
    """Of an agent of 6 channels and 69 features with so many frames a second; rounds and snapshots as by default."""
    with tempfile.TemporaryDirectory() as name:
        kept = _Kept(Path(name), seed)
        kept.warm()
        return kept.live(per_s, round_s or default("coordinator.round_s"), span_s or default("agent.snapshot_s"))


class _Kept:
    """One agent in a fleet of its own, with its memory on the disk."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.memory = self._memory(folder / "agent")
        self.rows = stream.frames(seed)
        self.at_ms = stream.START_MS
        self.coordinator = rounds.init(coordination.CoordinatorConfig(round_s=1.0, answer_s=0.0), self.at_ms)

    def warm(self) -> None:
        for _ in range(WARM_ROUNDS):
            self._read(WARM_FRAMES // WARM_ROUNDS)
            self._round()

    def live(self, per_s: float, round_s: float, span_s: float) -> Writing:
        """Until a snapshot is due by time, by the work of a replay, or by the journal's length."""
        self.memory.save()
        before, now_s, frames = self.memory.written, 0.0, 0
        while now_s < span_s and not self.memory.is_due:
            now_s += min(round_s, span_s - now_s)
            due = round(per_s * now_s) - frames
            for _ in range(due):
                self._read(1)
                frames += 1
                if self.memory.is_due:
                    now_s = frames / per_s
                    break
            else:
                self._round()
        replay_s = self._replay_s()
        self.memory.save()
        snapshots = DAY_S / now_s
        size = (self.folder / "agent" / SNAPSHOT).stat().st_size
        return Writing(size, snapshots, snapshots * (self.memory.written - before), replay_s)

    def _memory(self, folder: Path) -> Memory:
        fresh = agent.init(AgentConfig(agent_id="agent-1", schema=stream.schema()), stream.START_MS)
        return Memory(folder, fresh, Log("writing", level="error"))

    def _replay_s(self) -> float:
        again = self.folder / "again"
        shutil.copytree(self.folder / "agent", again)
        begin_s = time.process_time()
        memory = self._memory(again)
        taken_s = time.process_time() - begin_s
        assert memory.events == self.memory.events
        return taken_s

    def _read(self, count: int) -> None:
        interval_ms = stream.schema().interval_ms
        for row in islice(self.rows, count):
            self.at_ms += interval_ms
            values = tuple(round(float(value), 4) for value in row)
            self._step(Readings(self.at_ms, (Sample(self.at_ms, self.at_ms, tuple(range(len(values))), values),)))

    def _round(self) -> None:
        self.at_ms += 1_000
        self.coordinator, _ = rounds.step(self.coordinator, coordination.Tick(self.at_ms))
        for effect in self._step(RoundOpened(self.at_ms, self.coordinator.round)):
            if isinstance(effect, Publish) and effect.kind in ("bootstrap", "summary"):
                arrived = coordination.BootstrapArrived if effect.kind == "bootstrap" else coordination.SummaryArrived
                event = arrived(self.at_ms, "agent-1", codec.encode(effect.message))
                self.coordinator, _ = rounds.step(self.coordinator, event)
        self.coordinator, effects = rounds.step(self.coordinator, coordination.Tick(self.at_ms + 1))
        for effect in effects:
            if isinstance(effect, coordination.PublishModel):
                self._step(ModelArrived(self.at_ms, effect.payload))

    def _step(self, event: Event) -> list[object]:
        """What the body does with an event."""
        self.memory.keep(event)
        begin_s = time.process_time()
        self.memory.state, effects = agent.step(self.memory.state, event)
        self.memory.work_s += time.process_time() - begin_s
        return list(effects)


def main(argv: list[str] | None = None) -> int:
    args = parser("writing", __doc__ or "").parse_args(argv)
    report = Report("writing", BARS)
    return finish(report, args, lambda: tell(report, (JUDGED,) if args.quick else PACES))


def tell(report: Report, paces: tuple[float, ...]) -> None:
    for per_s in paces:
        found = measure(per_s, report.seed)
        row = {
            "snapshot_mb": found.snapshot_bytes / 1e6,
            "snapshots_a_day": found.snapshots,
            "mb_a_day": found.bytes / 1e6,
            "replay_s": found.replay_s,
        }
        report.rows.append({"frames a minute": 60 * per_s, **row})
        if per_s == JUDGED:
            report.figures.update({f"writing.{name}": round(value, 2) for name, value in row.items()})


if __name__ == "__main__":
    sys.exit(main())
