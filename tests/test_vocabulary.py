"""Vocabulary of the code: vague words in names and docstrings, and unique class names."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

TOP = Path(__file__).parents[1]
VAGUE = {"said", "told", "came", "goes"}
MOST_POSITIONAL = 3


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Return each node of the package with its place, once for all tests that read them."""
    matches: list[tuple[str, ast.AST]] = []
    for path in sorted((TOP / "proxy").rglob("*.py")):
        file = path.relative_to(TOP).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            matches.append((f"{file}:{getattr(node, 'lineno', 1)}", node))  # noqa: PERF401
    return matches


def identifiers(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.alias):
        return [node.asname or node.name]
    return []


def test_names_contain_no_vague_words() -> None:
    vague = [
        f"{place} {name}"
        for place, node in nodes()
        for name in identifiers(node)
        if VAGUE & set(name.lower().split("_"))
    ]

    assert vague == []


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for place, node in nodes():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(place)

    assert {name: matches for name, matches in places.items() if len(matches) > 1} == {}


def test_docstrings_start_with_no_verb_of_saying() -> None:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    openings = re.compile(r"(?:Gives?|Says?|Tells?)\b")
    private = [
        place
        for place, node in nodes()
        if isinstance(node, documented) and openings.match(ast.get_docstring(node) or "")
    ]

    assert private == []


def values() -> set[str]:
    """Return the names of our dataclasses and named tuples."""
    return {
        node.name
        for _, node in nodes()
        if isinstance(node, ast.ClassDef)
        and (
            any(
                ast.unparse(decorator).startswith(("dataclass", "frozen"))
                for decorator in node.decorator_list
            )
            or any("NamedTuple" in ast.unparse(base) for base in node.bases)
        )
    }


def test_large_values_are_built_by_keyword() -> None:
    ours = values()
    positional = [
        f"{place} {node.func.id}"
        for place, node in nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ours
        and (
            len(node.args) > MOST_POSITIONAL
            or any(isinstance(argument, ast.Starred) for argument in node.args)
        )
    ]

    assert positional == []
