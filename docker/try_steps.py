"""Run every RUN step of the Dockerfile on a machine without a Docker engine, in a clean folder.

    python docker/try_steps.py [--keep DIR]

Each stage becomes a folder, and absolute paths of the image are paths in it; COPY copies, ENV is set, `python` is a fresh
virtual environment of the Python that runs this script. An `apt-get install` is only simulated, and a `chown` needs root.
In the end every program's ENTRYPOINT must answer `--help`, and its HEALTHCHECK must call a script that is in the image.
What this cannot tell: whether the base image can be pulled, and what differs between it and this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCKERFILE = ROOT / "docker" / "Dockerfile"
# Folders of the image that steps write to. Anything else (/usr/bin, /dev/null) is this machine's own.
IMAGE_FOLDERS = ("/src", "/wheels", "/opt/fleetgp", "/var/lib/fleetgp", "/usr/local/lib/fleetgp")
SECONDS = 600


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile, continued lines joined."""

    word: str
    rest: str
    line: int


@dataclass
class Stage:
    """What one stage has come to: its folder on this machine, its environment, where it stands, how it starts."""

    name: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    entrypoint: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    user: str = "root"


class StepError(Exception):
    """A step of the Dockerfile does not do what it should."""


def read_instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile, without comments.  line: where each begins."""
    pending, start = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        start = start if pending else number
        pending += line.removesuffix("\\").rstrip() + " "
        if not line.endswith("\\"):
            word, _, rest = pending.strip().partition(" ")
            yield Instruction(word.upper(), rest.strip(), start)
            pending = ""


class Builder:
    """Builds all stages, one after the other, under one folder."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.stages: dict[str, Stage] = {}
        self.python = base / ".python"  # no stage is called so
        subprocess.run([sys.executable, "-m", "venv", str(self.python)], check=True)

    def build(self, text: str) -> None:
        """Carry out a whole Dockerfile.  Raises StepError, naming the line, when a step fails."""
        stage: Stage | None = None
        for instruction in read_instructions(text):
            if instruction.word == "FROM":
                stage = self._begin(instruction)
            elif stage is not None:
                self._carry_out(stage, instruction)
            elif instruction.word != "ARG":
                raise StepError(f"line {instruction.line}: {instruction.word} before FROM")

    def _begin(self, instruction: Instruction) -> Stage:
        source, _, name = re.split(r"\s+(as)\s+", instruction.rest, flags=re.IGNORECASE)
        stage = Stage(name, self.base / name)
        stage.folder.mkdir()
        if parent := self.stages.get(source):
            shutil.copytree(parent.folder, stage.folder, symlinks=True, dirs_exist_ok=True)
            stage.environment, stage.workdir = dict(parent.environment), parent.workdir
            stage.entrypoint, stage.health, stage.user = parent.entrypoint, parent.health, parent.user
        self.stages[name] = stage
        print(f"stage {name}")
        return stage

    def _carry_out(self, stage: Stage, instruction: Instruction) -> None:
        rest = instruction.rest
        match instruction.word:
            case "RUN":
                self._run(stage, instruction)
            case "COPY":
                self._copy(stage, instruction)
            case "WORKDIR":
                stage.workdir = rest
                self.inside(stage, rest).mkdir(parents=True, exist_ok=True)
            case "ENV":
                stage.environment |= dict(re.findall(r"(\w+)=(\S+)", rest))
            case "USER":
                stage.user = rest
            case "ENTRYPOINT":
                stage.entrypoint = tuple(json.loads(rest))
            case "HEALTHCHECK":
                stage.health = tuple(json.loads(rest[rest.index("[") :]))
            case "VOLUME" | "EXPOSE" | "ARG":
                pass
            case word:
                raise StepError(f"line {instruction.line}: {word} is not known here")

    def _run(self, stage: Stage, instruction: Instruction) -> None:
        command = instruction.rest
        if "apt-get" in command:
            command = re.sub(r"apt-get install", "apt-get install --simulate", command)
        if "chown" in command and os.geteuid() != 0:
            print(f"  line {instruction.line}: not tried, chown needs root: {command}")
            return
        print(f"  line {instruction.line}: {command}", flush=True)
        done = self.shell(stage, self.mapped(stage, command))
        if done.returncode:
            raise StepError(f"line {instruction.line}: ended with {done.returncode}: {command}\n{done.stdout}")

    def _copy(self, stage: Stage, instruction: Instruction) -> None:
        words = instruction.rest.split()
        options = [word for word in words if word.startswith("--")]
        *sources, target = [word for word in words if not word.startswith("--")]
        origin = next((option.removeprefix("--from=") for option in options if option.startswith("--from=")), "")
        into = self.inside(stage, target)
        for source in sources:
            found = self.inside(self.stages[origin], source) if origin else ROOT / source
            if found.is_dir():
                shutil.copytree(
                    found, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
                )
            elif found.is_file():
                destination = into / found.name if target.endswith("/") else into
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, destination)
            else:
                raise StepError(f"line {instruction.line}: there is no {source} to copy")

    def inside(self, stage: Stage, path: str) -> Path:
        """Where a path of the image (relative ones from its working directory) is on this machine."""
        return stage.folder / os.path.normpath(os.path.join(stage.workdir, path)).lstrip("/")

    def mapped(self, stage: Stage, text: str) -> str:
        """A command of the image with its folders replaced by ours."""
        folders = "|".join(map(re.escape, IMAGE_FOLDERS))
        return re.sub(rf"(?<![\w./-])({folders})(?![\w-])", lambda found: str(stage.folder) + found[0], text)

    def shell(self, stage: Stage, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line as the stage would: its folder, its environment, `python` first on the path."""
        environment = {**os.environ, **{name: self._value(stage, name) for name in stage.environment}}
        for unwanted in ("PIP_NO_CACHE_DIR", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"):
            environment.pop(unwanted, None)  # an image has no cache to keep; this machine has, and it saves minutes
        environment["PATH"] = os.pathsep.join([*self._own_path(stage), str(self.python / "bin"), os.environ["PATH"]])
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.inside(stage, stage.workdir),
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )

    def _value(self, stage: Stage, name: str) -> str:
        return self.mapped(stage, stage.environment[name])

    def _own_path(self, stage: Stage) -> list[str]:
        entries = stage.environment.get("PATH", "").split(":")
        return [self.mapped(stage, entry) for entry in entries if entry and "$" not in entry]


def check_programs(builder: Builder) -> list[str]:
    """What is wrong with how the programs start; empty when each answers --help, is not root and can be checked."""
    problems = []
    programs = [stage for stage in builder.stages.values() if stage.entrypoint]
    for stage in programs:
        done = builder.shell(stage, " ".join([*stage.entrypoint, "--help"]))
        if done.returncode or "usage" not in done.stdout.lower():
            last = "\n".join(done.stdout.splitlines()[-3:])
            problems.append(f"{stage.name}: {' '.join(stage.entrypoint)} --help ended with {done.returncode}:\n{last}")
        if stage.user.partition(":")[0] in ("root", "0"):
            problems.append(f"{stage.name}: runs as root")
        scripts = [word for word in stage.health if word.endswith(".py")]
        if not scripts or not all(builder.inside(stage, script).is_file() for script in scripts):
            problems.append(f"{stage.name}: its HEALTHCHECK calls no script that is in the image")
        print(f"{stage.name}: {_megabytes(stage.folder):.0f} MB beyond the base image")
    return problems if programs else ["the Dockerfile has no program"]


def _megabytes(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()) / 1e6


def main() -> int:
    """Build all stages and check the programs; exit status 0 when all went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="build here and leave it, instead of a temporary folder"
    )
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="fleetgp-docker-") as temporary:
        base = keep or Path(temporary)
        base.mkdir(parents=True, exist_ok=True)
        builder = Builder(base.resolve())
        try:
            builder.build(DOCKERFILE.read_text(encoding="utf-8"))
        except StepError as error:
            print(f"docker/Dockerfile, {error}", file=sys.stderr)
            return 1
        problems = check_programs(builder)
    print("\n".join(problems) or "every step of the Dockerfile runs, every program answers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
