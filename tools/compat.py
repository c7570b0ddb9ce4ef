"""Tries the package as others install it: under every Python of this machine that it declares, and
with the lowest versions of what it needs.

python -m tools.compat            # say which Pythons there are, and run the fast tests under each
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
"""What the tests of the fast loop need beside the package, as requirements/dev.in declares it."""
SLOWEST_S = 1200


@dataclass(frozen=True)
class Trial:
    """One environment: a Python, and whether what is declared is taken at its lowest."""

    version: Version
    python: Path
    lowest: bool

    @property
    def title(self) -> str:
        versions = "the lowest versions declared" if self.lowest else "the versions of the locks"
        return f"Python {self.version[0]}.{self.version[1]} with {versions}"

    @property
    def folder(self) -> Path:
        return (
            FOLDER / f"{self.version[0]}.{self.version[1]}-{'lowest' if self.lowest else 'locked'}"
        )


def least() -> Version:
    """Return the lowest Python that pyproject.toml declares."""
    declared = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["requires-python"]
    [found] = re.findall(r">=(\d+)\.(\d+)", declared)
    return int(found[0]), int(found[1])


def places(path: Iterable[str], home: Path) -> Iterator[Path]:
    """Yield where Pythons may be: on the path, and where pyenv and uv put theirs."""
    yield from map(Path, path)
    yield from sorted(home.glob(".pyenv/versions/*/bin"))
    yield from sorted(home.glob(".local/share/uv/python/*/bin"))


def pythons(folders: Iterable[Path], lowest: Version) -> dict[Version, Path]:
    """Return the first working Python of each version from the lowest on."""
    found: dict[Version, Path] = {}
    for folder in folders:
        for file in sorted(folder.glob("python3*")):
            if re.fullmatch(r"python3\.\d+", file.name) and os.access(file, os.X_OK):
                version = version_of(file)
                if version is not None and version >= lowest:
                    found.setdefault(version, file)
    return dict(sorted(found.items()))


def version_of(python: Path) -> Version | None:
    """Return the version that a program says it is, None where it does not start."""
    asked = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False).stdout
    numbers = said.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def trials(found: Mapping[Version, Path]) -> list[Trial]:
    """Return what is tried: each Python with the locks, the first with the lowest versions too."""
    locked = [Trial(version, python, lowest=False) for version, python in found.items()]
    return [*locked, *(Trial(each.version, each.python, lowest=True) for each in locked[:1])]


def install(trial: Trial, uv: Path) -> None:
    """Make the environment anew. Raise ``CalledProcessError`` where that fails."""
    run(uv, "venv", "-q", "--clear", "--python", trial.python, trial.folder)
    python = ("--python", trial.folder / "bin" / "python")
    add = (uv, "pip", "install", "-q", *python)
    if trial.lowest:
        run(*add, "--resolution", "lowest-direct", "-e", f".[{','.join(EXTRAS)}]")
        lowest = trial.folder / "lowest.txt"
        freeze = [str(each) for each in (uv, "pip", "freeze", "--exclude-editable", *python)]
        lowest.write_bytes(subprocess.run(freeze, check=True, stdout=subprocess.PIPE).stdout)
        run(*add, "--constraint", lowest, *declared(TOOLS))
        return
    for lock in ("runtime", "build", "dev"):
        run(*add, "--require-hashes", "-r", f"requirements/{lock}.lock")
    run(*add, "--no-deps", "--no-build-isolation", "-e", ".")


def declared(names: Iterable[str]) -> list[str]:
    """Return what is needed to develop, of these names, each with the versions that will do."""
    lines = (TOP / "requirements" / "dev.in").read_text().splitlines()
    return [line for line in lines if re.split(r"[<>=]", line)[0] in names]


def run(*command: str | Path) -> None:
    subprocess.run(command, cwd=TOP, check=True, timeout=SLOWEST_S)


def passes(trial: Trial, uv: Path, tests: list[str]) -> bool:
    """Install and run the tests. Return whether both went well."""
    print(f"== {trial.title}", flush=True)
    try:
        install(trial, uv)
        run(trial.folder / "bin" / "python", "-m", "pytest", *tests)
    except subprocess.CalledProcessError as error:
        print(f"== {trial.title}: failed with status {error.returncode}", flush=True)
        return False
    return True


def main() -> int:
    found = pythons(places(os.get_exec_path(), Path.home()), least())
    tried = trials(found)
    print("Tried here:", "; ".join(each.title for each in tried), flush=True)
    uv = Path(sys.executable).with_name("uv")
    results = {trial.title: passes(trial, uv, sys.argv[1:]) for trial in tried}
    for title, passed in results.items():
        print(f"{'passed' if passed else 'FAILED'}: {title}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
