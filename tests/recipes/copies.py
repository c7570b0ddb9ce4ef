"""A copy of the repository, to which the test of a recipe adds what the recipe says."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
ADDED = Path(__file__).with_name("added")
PARTS = ("bench", "proxy", "tools", "tests", "docs", "dashboards", "policies")
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

    def add_import(self, path: str, statement: str) -> None:
        """Import something, after all that is imported."""
        imports = [
            each for each in self._tree(path).body if isinstance(each, ast.Import | ast.ImportFrom)
        ]
        self._insert(path, _end(imports[-1]), statement)

    def add_item(self, path: str, table: str, item: str) -> None:
        """Put an item, with its key if it has one, at the end of the table of a name."""
        [value] = [
            each.value
            for each in self._tree(path).body
            if isinstance(each, ast.Assign | ast.AnnAssign) and _name(each) == table
        ]
        assert value is not None
        last = next(each for each in map(_last, ast.walk(value)) if each is not None)
        self._put(path, last, f", {item}")

    def add_argument(self, path: str, called: str, argument: str) -> None:
        """Give an argument by its name, to the only call of a name."""
        [keywords] = [
            each.keywords
            for each in ast.walk(self._tree(path))
            if isinstance(each, ast.Call)
            and isinstance(each.func, ast.Name)
            and each.func.id == called
        ]
        self._put(path, keywords[-1], f", {argument}")

    def add_field(self, path: str, owner: str, *lines: str) -> None:
        """Put a field after those that a class has."""
        [found] = [
            each
            for each in self._tree(path).body
            if isinstance(each, ast.ClassDef) and each.name == owner
        ]
        fields = [at for at, each in enumerate(found.body) if isinstance(each, ast.AnnAssign)]
        last, behind = found.body[fields[-1]], found.body[fields[-1] + 1 :]
        if behind and isinstance(behind[0], ast.Expr):  # its docstring
            last = behind[0]
        self._insert(path, _end(last), *(f"    {line}" for line in lines))

    def add_at_end(self, path: str, function: str, *lines: str) -> None:
        """Put lines at the end of the outermost function of a name, before what it returns."""
        found = next(
            each
            for each in ast.walk(self._tree(path))  # level by level
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == function
        )
        last = found.body[-1]
        at = last.lineno - 1 if isinstance(last, ast.Return) else _end(last)
        self._insert(path, at, *(" " * last.col_offset + line for line in lines))

    def _tree(self, path: str) -> ast.Module:
        return ast.parse(self.read(path))

    def _insert(self, path: str, at: int, *added: str) -> None:
        """Write lines after so many of a file."""
        file = self._written(path)
        lines = file.read_text().splitlines()
        file.write_text("\n".join((*lines[:at], *added, *lines[at:], "")))

    def _put(self, path: str, after: ast.expr | ast.keyword, text: str) -> None:
        """Write a text where something ends."""
        assert after.end_lineno is not None
        file, number = self._written(path), after.end_lineno - 1
        lines = file.read_text().splitlines(keepends=True)
        line, at = lines[number].encode(), after.end_col_offset  # in bytes
        assert at is not None
        lines[number] = (line[:at] + text.encode() + line[at:]).decode()
        file.write_text("".join(lines))

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


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _name(node: ast.Assign | ast.AnnAssign) -> str | None:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def _last(node: ast.AST) -> ast.expr | None:
    """Return the last item of a table that is written out; None for anything else."""
    match node:
        case ast.Dict(values=[*_, last]):
            return last
        case ast.Tuple(elts=[*_, last]) | ast.List(elts=[*_, last]) | ast.Set(elts=[*_, last]):
            return last
        case _:
            return None


def copied(at: Path, title: str, name: str) -> Copy:
    """Return a copy in which the recipe of that title is to be followed for ``name``."""
    for part in PARTS:
        shutil.copytree(TOP / part, at / part, ignore=shutil.ignore_patterns("node_modules"))
    for file in FILES:
        shutil.copy2(TOP / file, at / file)
    return Copy(at, recipe(title), name)
