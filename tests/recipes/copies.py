"""A copy of the repository in which a test follows a recipe."""

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
    _, _, remainder = (TOP / "CONTRIBUTING.md").read_text().partition(f"\n### {title}\n")
    assert remainder, f"there is no recipe for {title}"
    return re.split(r"\n##+ ", remainder)[0]


@dataclass(frozen=True)
class Copy:
    """A copy at a folder, in which a ``recipe`` is followed for a thing of one ``name``.

    No file is written that the recipe does not speak of.
    """

    at: Path
    recipe: str
    name: str

    def add(self, path: str, source: str) -> None:
        """Copy a file of ``added`` to the path of the recipe, whose ``NAME`` is its name."""
        file = self._written(path)
        assert not file.exists(), f"{path} is there already"
        shutil.copyfile(ADDED / source, file)

    def add_import(self, path: str, statement: str) -> None:
        """Add an import after the others."""
        imports = [
            item for item in self._tree(path).body if isinstance(item, ast.Import | ast.ImportFrom)
        ]
        self._insert(path, _end(imports[-1]), statement)

    def add_item(self, path: str, table: str, item: str) -> None:
        """Append an item, with its key if any, to the named table."""
        [value] = [
            node.value
            for node in self._tree(path).body
            if isinstance(node, ast.Assign | ast.AnnAssign) and _name(node) == table
        ]
        assert value is not None
        last_value = next(node for node in map(_last, ast.walk(value)) if node is not None)
        self._put(path, last_value, f", {item}")

    def add_argument(self, path: str, name: str, argument: str) -> None:
        """Add a keyword argument to the only call of a function."""
        [keywords] = [
            t.keywords
            for t in ast.walk(self._tree(path))
            if isinstance(t, ast.Call) and isinstance(t.func, ast.Name) and t.func.id == name
        ]
        self._put(path, keywords[-1], f", {argument}")

    def add_field(self, path: str, owner: str, *lines: str) -> None:
        """Append a field to a class."""
        [result] = [
            item
            for item in self._tree(path).body
            if isinstance(item, ast.ClassDef) and item.name == owner
        ]
        fields = [
            index for index, item in enumerate(result.body) if isinstance(item, ast.AnnAssign)
        ]
        last_value, following = result.body[fields[-1]], result.body[fields[-1] + 1 :]
        if following and isinstance(following[0], ast.Expr):  # its docstring
            last_value = following[0]
        self._insert(path, _end(last_value), *(f"    {line}" for line in lines))

    def add_at_end(self, path: str, function: str, *lines: str) -> None:
        """Append lines to the outermost function of a name, before its return."""
        result = next(
            t
            for t in ast.walk(self._tree(path))  # level by level
            if isinstance(t, ast.FunctionDef | ast.AsyncFunctionDef) and t.name == function
        )
        last_value = result.body[-1]
        index = last_value.lineno - 1 if isinstance(last_value, ast.Return) else _end(last_value)
        self._insert(path, index, *(" " * last_value.col_offset + line for line in lines))

    def _tree(self, path: str) -> ast.Module:
        return ast.parse(self.read(path))

    def _insert(self, path: str, index: int, *added: str) -> None:
        """Insert lines after a line of a file."""
        file = self._written(path)
        lines = file.read_text().splitlines()
        file.write_text("\n".join((*lines[:index], *added, *lines[index:], "")))

    def _put(self, path: str, value_after: ast.expr | ast.keyword, text: str) -> None:
        """Insert a text at the end of a node."""
        assert value_after.end_lineno is not None
        file, number = self._written(path), value_after.end_lineno - 1
        lines = file.read_text().splitlines(keepends=True)
        line, index = lines[number].encode(), value_after.end_col_offset  # in bytes
        assert index is not None
        lines[number] = (line[:index] + text.encode() + line[index:]).decode()
        file.write_text("".join(lines))

    def _written(self, path: str) -> Path:
        name = path.replace(self.name, "NAME")
        assert f"`{name}`" in self.recipe, f"the recipe does not speak of {name}"
        return self.at / path

    def read(self, path: str) -> str:
        return (self.at / path).read_text()

    def run(self, *arguments: str) -> str:
        """Run a Python module in the copy and return its output."""
        command = [sys.executable, "-m", *arguments]
        environ = {**os.environ, "PYTHONPATH": str(self.at)}
        process = subprocess.run(
            command,
            cwd=self.at,
            env=environ,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout

    def test(self, *arguments: str) -> str:
        """Run tests of the copy and return the output of pytest."""
        return self.run("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _name(node: ast.Assign | ast.AnnAssign) -> str | None:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def _last(node: ast.AST) -> ast.expr | None:
    """Return the last item of a literal table, or None."""
    match node:
        case ast.Dict(values=[*_, last]):
            return last
        case ast.Tuple(elts=[*_, last]) | ast.List(elts=[*_, last]) | ast.Set(elts=[*_, last]):
            return last
        case _:
            return None


def copied(path: Path, title: str, name: str) -> Copy:
    """Return a copy in which to follow the recipe of this title for ``name``."""
    for part in PARTS:
        shutil.copytree(TOP / part, path / part, ignore=shutil.ignore_patterns("node_modules"))
    for file in FILES:
        shutil.copy2(TOP / file, path / file)
    return Copy(path, recipe(title), name)
