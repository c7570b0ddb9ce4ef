"""Tests the package with every supported Python of this machine, and with its lowest dependencies.

python -m tools.compat TESTS...   # passes TESTS to pytest
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

TOP = Path(__file__).parents[1]
FOLDER = TOP / ".venv-compat"
Version = tuple[int, int]
EXTRAS = ("redis", "prices", "lang", "onnx")
TOOLS = (
    "grafana-foundation-sdk",
    "hypothesis",
    "opentelemetry-proto",
    "promql-parser",
    "pytest",
    "pytest-aiohttp",
    "pytest-asyncio",
    "pytest-randomly",
    "pytest-timeout",
    "pytest-xdist",
)
"""Dependencies of the fast tests. Their versions are in requirements/dev.in."""
TIMEOUT_S = 1200


@dataclass(frozen=True)
class Trial:
    """An environment: a Python with locked or with the lowest dependencies."""

    version: Version
    python: Path
    has_lowest: bool

    @property
    def title(self) -> str:
        versions = (
            "the lowest versions declared" if self.has_lowest else "the versions of the locks"
        )
        return f"Python {self.version[0]}.{self.version[1]} with {versions}"

    @property
    def folder(self) -> Path:
        return (
            FOLDER
            / f"{self.version[0]}.{self.version[1]}-{'lowest' if self.has_lowest else 'locked'}"
        )


def min_version() -> Version:
    """Return the lowest Python that pyproject.toml declares."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    [(major, minor)] = re.findall(r">=(\d+)\.(\d+)", project["requires-python"])
    return int(major), int(minor)


def python_folders(path: Iterable[str], home: Path) -> Iterator[Path]:
    """Yield the folders of the path, pyenv and uv."""
    yield from map(Path, path)
    yield from sorted(home.glob(".pyenv/versions/*/bin"))
    yield from sorted(home.glob(".local/share/uv/python/*/bin"))


def find_pythons(folders: Iterable[Path], minimum: Version) -> dict[Version, Path]:
    """Return the first working Python of each supported version."""
    pythons: dict[Version, Path] = {}
    for folder in folders:
        for file in sorted(folder.glob("python3*")):
            if re.fullmatch(r"python3\.\d+", file.name) and os.access(file, os.X_OK):
                version = version_of(file)
                if version is not None and version >= minimum:
                    pythons.setdefault(version, file)
    return dict(sorted(pythons.items()))


def version_of(python: Path) -> Version | None:
    """Return the version of a program, or None if it does not start."""
    command = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    numbers = ran.stdout.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def plan_trials(pythons: Mapping[Version, Path]) -> list[Trial]:
    """Return a trial of each Python, and one of the lowest Python with the lowest dependencies."""
    locked = [Trial(version, python, has_lowest=False) for version, python in pythons.items()]
    return [*locked, *(replace(trial, has_lowest=True) for trial in locked[:1])]


def install(trial: Trial, uv: Path) -> None:
    """Create the environment. Raises ``CalledProcessError`` if a command fails."""
    run(uv, "venv", "-q", "--clear", "--python", trial.python, trial.folder)
    python = ("--python", trial.folder / "bin" / "python")
    add = (uv, "pip", "install", "-q", *python)
    if trial.has_lowest:
        run(*add, "--resolution", "lowest-direct", "-e", f".[{','.join(EXTRAS)}]")
        lowest = trial.folder / "lowest.txt"
        freeze: list[str | Path] = [uv, "pip", "freeze", "--exclude-editable", *python]
        lowest.write_bytes(subprocess.run(freeze, check=True, stdout=subprocess.PIPE).stdout)
        run(*add, "--constraint", lowest, *tool_requirements())
        return
    for lock in ("runtime", "build", "dev"):
        run(*add, "--require-hashes", "-r", f"requirements/{lock}.lock")
    run(*add, "--no-deps", "--no-build-isolation", "-e", ".")


def tool_requirements() -> list[str]:
    """Return the requirements of ``TOOLS`` with their version ranges."""
    lines = (TOP / "requirements" / "dev.in").read_text().splitlines()
    return [line for line in lines if re.split(r"[<>=]", line)[0] in TOOLS]


def run(*command: str | Path) -> None:
    subprocess.run(command, cwd=TOP, check=True, timeout=TIMEOUT_S)


def passes(trial: Trial, uv: Path, tests: list[str]) -> bool:
    """Return True if the installation and the tests succeed."""
    print(f"== {trial.title}", flush=True)
    try:
        install(trial, uv)
        run(trial.folder / "bin" / "python", "-m", "pytest", *tests)
    except subprocess.CalledProcessError as error:
        print(f"== {trial.title}: failed with status {error.returncode}", flush=True)
        return False
    return True


def main() -> int:
    folders = python_folders(os.get_exec_path(), Path.home())
    trials = plan_trials(find_pythons(folders, min_version()))
    print("Environments:", "; ".join(trial.title for trial in trials), flush=True)
    uv = Path(sys.executable).with_name("uv")
    results = {trial.title: passes(trial, uv, sys.argv[1:]) for trial in trials}
    for title, has_passed in results.items():
        print(f"{'passed' if has_passed else 'FAILED'}: {title}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
