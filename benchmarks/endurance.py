"""Memory of every program of a running demo after 1, 5 and 10 minutes: it has to stay flat."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.report import Bar, Report, finish, parser
from simulator.demo import Demo, DemoPlan

MINUTES = (1.0, 5.0, 10.0)
QUICK_MINUTES = (0.1, 0.25)
LIVE_S = 5.0
GROWTH_MB = 4.0


def main(argv: list[str] | None = None) -> int:
    arguments = parser("endurance", __doc__ or "")
    arguments.add_argument("--viewer", action="store_true", help="leave the dashboard open in a browser meanwhile")
    arguments.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table as a page")
    args = arguments.parse_args(argv)
    report = Report("endurance", (Bar("endurance.growth_mb", "<=", GROWTH_MB), Bar("endurance.frames_lost", "==", 0)))
    status = finish(report, args, lambda: measure(report, QUICK_MINUTES if args.quick else MINUTES, args.viewer))
    if args.markdown:
        args.markdown.write_text(page(report))
    return status


def measure(report: Report, minutes: tuple[float, ...], has_viewer: bool) -> None:
    """Run a demo in a thread and look at its programs from outside, as the system sees them."""
    with tempfile.TemporaryDirectory() as folder:
        plan = DemoPlan(
            Path(folder) / "demo", seconds=60 * minutes[-1] + LIVE_S, say=lambda text: print(text, file=sys.stderr)
        )
        demo = Demo(plan, threading.Event())
        outcome: list[int] = []
        thread = threading.Thread(target=lambda: outcome.append(demo.run().frames_lost), name="demo")
        thread.start()
        while thread.is_alive() and "devices" not in demo.children.running:
            time.sleep(0.1)
        gone = threading.Event()
        if has_viewer:
            threading.Thread(target=watch_pages, args=(demo.port, gone), name="viewer", daemon=True).start()
        begin_s = time.monotonic()
        seen: dict[str, dict[float, float]] = {}
        for minute in minutes:
            time.sleep(max(0.0, begin_s + 60 * minute - time.monotonic()))
            for name, pid in programs(demo).items():
                seen.setdefault(name, {})[minute] = round(resident_mb(pid), 1)
        gone.set()
        thread.join(60.0)
    for name, figures in sorted(seen.items()):
        row = {"program": name, **{f"{minute:g} min": figures.get(minute) for minute in minutes}}
        report.rows.append(row)
    # the last two looks: by then every cache is filled, so that what still grows, leaks
    grown = [figures[minutes[-1]] - figures[minutes[-2]] for figures in seen.values() if len(figures) == len(minutes)]
    if minutes == MINUTES:  # a quick run ends before the caches are filled
        report.figures["endurance.growth_mb"] = round(max(grown), 2)
    report.figures["endurance.agent_mb"] = round(
        max(v[minutes[-1]] for k, v in seen.items() if k.startswith("pump")), 1
    )
    if outcome:
        report.figures["endurance.frames_lost"] = float(outcome[0])


def programs(demo: Demo) -> dict[str, int]:
    """Process ids by name, the broker's too."""
    found = {name: process.pid for name, process in list(demo.children.running.items())}
    return found | ({"broker": demo.broker_pid} if demo.broker_pid else {})


def resident_mb(pid: int) -> float:
    """Resident memory of a process and those it started, MB of 2**20 bytes; Linux."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(folder.name))
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        waiting += parents.get(one, [])
        try:
            lines = Path(f"/proc/{one}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total / 1024


def watch_pages(port: int, stop: threading.Event) -> None:
    """A viewer: a headless browser that leaves the dashboard open and goes from page to page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        address = f"http://127.0.0.1:{port}"
        page.goto(address)
        while not stop.wait(20.0):
            links = page.locator('[data-testid="stSidebarNavLink"], [data-testid="stTopNavLink"]').all()
            if links:
                links[int(time.monotonic() / 20) % len(links)].click()
        browser.close()


def page(report: Report) -> str:
    """The table as docs/endurance.md."""
    result = report.as_dict()
    names = list(report.rows[0])
    lines = [
        "# Endurance",
        "",
        "Resident memory (MB) of every program of `fleetgp demo` while it runs. Made by",
        "`python -m benchmarks.endurance --viewer --markdown docs/endurance.md`.",
        "",
        f"{result['date']}, commit {result['commit']}, {result['machine']['cores']} cores, Python {result['machine']['python']}.",
        "",
        "| " + " | ".join(names) + " |",
        "|" + "---|" * len(names),
    ]
    lines += [
        "| " + " | ".join("-" if row[name] is None else str(row[name]) for name in names) + " |" for row in report.rows
    ]
    growth = report.figures.get("endurance.growth_mb", "-")
    lost = int(report.figures.get("endurance.frames_lost", -1))
    lines += ["", f"Largest growth between the last two looks: {growth} MB. Readings lost: {lost}.", ""]
    lines += [
        "What still grows by then are caches with a bound: SQLite's pages (2 MB a file) and the dashboard's ring of the"
    ]
    lines += ["newest 1,000 frames of each agent. The dashboard was open in a browser that went from page to page.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
