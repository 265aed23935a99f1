"""Print what an agent needs from pip, one requirement a line: the dependencies of pyproject.toml without any extra."""

from __future__ import annotations

import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
print("\n".join(project["dependencies"]))
