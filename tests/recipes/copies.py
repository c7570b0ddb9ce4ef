"""A copy of the repository, to which the test of a recipe adds what the recipe says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
ADDED = Path(__file__).with_name("added")
PARTS = ("proxy", "tools", "tests", "docs", "dashboards", "policies")
FILES = ("pyproject.toml", "CONTRIBUTING.md", "README.md")
LONGEST_S = 300


def recipe(title: str) -> str:
    """Return a recipe of CONTRIBUTING.md by its title."""
    _, _, rest = (TOP / "CONTRIBUTING.md").read_text().partition(f"\n### {title}\n")
    assert rest, f"there is no recipe for {title}"
    return re.split(r"\n##+ ", rest)[0]


@dataclass(frozen=True)
class Copy:
    """A copy at a folder, in which a ``recipe`` is followed for a thing of one ``name``.

    No file is written that the recipe does not speak of.
    """

    at: Path
    recipe: str
    name: str

    def add(self, path: str, source: str) -> None:
        """Put a file of ``added`` where the recipe says; its own name stands for ``NAME`` there."""
        file = self._written(path)
        assert not file.exists(), f"{path} is there already"
        shutil.copyfile(ADDED / source, file)

    def insert(self, path: str, after: str, *lines: str) -> None:
        """Put lines after the only one that reads so."""
        file = self._written(path)
        text = file.read_text()
        assert text.count(f"{after}\n") == 1, f"{path} has no such line, or several: {after}"
        file.write_text(text.replace(f"{after}\n", "\n".join((after, *lines, ""))))

    def replace(self, path: str, old: str, new: str) -> None:
        """Write something else for what stands in a file once."""
        file = self._written(path)
        text = file.read_text()
        assert text.count(old) == 1, f"{path} has it not, or several times: {old}"
        file.write_text(text.replace(old, new))

    def _written(self, path: str) -> Path:
        named = path.replace(self.name, "NAME")
        assert f"`{named}`" in self.recipe, f"the recipe does not speak of {named}"
        return self.at / path

    def read(self, path: str) -> str:
        return (self.at / path).read_text()

    def run(self, *arguments: str) -> str:
        """Return what Python prints for a module and its arguments, run in the copy."""
        command = [sys.executable, "-m", *arguments]
        environ = {**os.environ, "PYTHONPATH": str(self.at)}
        done = subprocess.run(
            command,
            cwd=self.at,
            env=environ,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def test(self, *arguments: str) -> str:
        """Run tests of the copy. Return what pytest prints."""
        return self.run("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


def copied(at: Path, title: str, name: str) -> Copy:
    """Return a copy in which the recipe of that title is to be followed for ``name``."""
    for part in PARTS:
        shutil.copytree(TOP / part, at / part)
    for file in FILES:
        shutil.copy2(TOP / file, at / file)
    return Copy(at, recipe(title), name)
