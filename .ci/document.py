"""Write docs/settings.md and docs/wire.md from the code; with ``--check`` only say whether they are in step.

Exit status 0: written, or in step; 1: out of step (``make docs`` mends that).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from fleetgp.runtime import settings
from fleetgp.wire import document

DOCS = Path(__file__).parent.parent / "docs"
PAGES: dict[str, Callable[[], str]] = {"settings.md": settings.markdown, "wire.md": document.markdown}


def holds(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def main() -> int:
    """Write, or check, every page that is made from the code."""
    stale = {name: text for name, write in PAGES.items() if not holds(DOCS / name, text := write())}
    if "--check" in sys.argv[1:]:
        print("\n".join(f"docs/{name} is not in step with the code: run make docs" for name in stale) or "docs in step")
        return 1 if stale else 0
    for name, text in stale.items():
        (DOCS / name).write_text(text, encoding="utf-8")
    print(f"written: {', '.join(stale) or 'nothing, all in step'}")
    return 0


sys.exit(main())
