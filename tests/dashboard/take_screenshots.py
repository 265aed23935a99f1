"""Photographs the three pages of a running dashboard: ``python tests/dashboard/take_screenshots.py --url URL --out DIR``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ARGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SIZE = {"width": 1400, "height": 900}
PAGES = {"fleet": "", "device": "device", "rounds": "rounds"}  # picture: where the page is


def chromium_path() -> str:
    """Where the browser is: $CHROMIUM, else Debian's place."""
    return os.environ.get("CHROMIUM", "/usr/bin/chromium")


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=list(ARGS))
        try:
            yield chromium
        finally:
            chromium.close()


def settle(page: Page) -> None:
    """Wait until the page has drawn something and its script rests."""
    page.wait_for_function(
        """() => document.querySelector('[data-testid="stMain"] :is(canvas, svg, [data-testid="stAlert"])')
                 && !document.querySelector('[data-test-script-state="running"], [data-testid="stSkeleton"]')""",
        timeout=30_000,
    )
    page.wait_for_timeout(1200)


def take(chromium: Browser, url: str, out: Path, *, theme: str = "light", agent: str = "") -> list[Path]:
    """Save fleet.png, device.png and rounds.png under ``out``. agent: whose device page, "" = the first one's."""
    out.mkdir(parents=True, exist_ok=True)
    taken = []
    page = chromium.new_page(viewport=SIZE, color_scheme="dark" if theme == "dark" else "light")
    for name, place in PAGES.items():
        page.goto(f"{url}/{place}" + (f"?agent={agent}" if agent and name == "device" else ""))
        settle(page)
        taken.append(out / f"{name}.png")
        page.screenshot(path=taken[-1])
    page.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description="Save fleet.png, device.png and rounds.png of a running dashboard.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    parser.add_argument("--agent", default="", help="whose device page (default: the first agent's)")
    given = parser.parse_args()
    with browser() as chromium:
        for path in take(chromium, given.url.rstrip("/"), given.out, theme=given.theme, agent=given.agent):
            print(path)


if __name__ == "__main__":
    main()
