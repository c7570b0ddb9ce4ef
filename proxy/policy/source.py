"""YAML read strictly: bounded, without surprises, and with the place of every key and value.

Only ``true``, ``false``, ``null`` and decimal numbers are more than text, so ``no`` is a word and
``012`` is not ten. Duplicate keys, tags, merge keys, anchors and tabs are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
QUOTED = ("'", '"', "|", ">")
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}

Path_ = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file, counted from 1 as editors do."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong, and where."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}:{self.column}: {where}{self.message}"


class PolicyError(Exception):
    """The policies cannot be taken into force; it names all that is wrong, in order."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(slots=True)
class Document:
    """Plain data of one or several files, and the place of each key and value by its path."""

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path_, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path_) -> Place:
        """Give the place of a path, or of the nearest part of it that is written down."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place("policies", 1, 1))

    def complain(self, path: Path_, message: str) -> None:
        at = self.place(path)
        said = ".".join(map(str, path))
        self.problems.append(Problem(at.file, at.line, at.column, said, message))


def read_file(file: Path, shown: str, into: Document) -> None:
    """Read one file into the document, its sections merged with those already there."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        into.problems.append(Problem(shown, 1, 1, "", f"cannot be read: {error.strerror}"))
        return
    if len(raw) > MAX_FILE_BYTES:
        into.problems.append(Problem(shown, 1, 1, "", f"is larger than {MAX_FILE_BYTES} bytes"))
        return
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        into.problems.append(Problem(shown, 1, 1, "", "is not UTF-8"))
        return
    try:
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        into.problems.append(_syntax(error, text, shown))
        return
    except (yaml.YAMLError, RecursionError):
        into.problems.append(Problem(shown, 1, 1, "", "is not YAML"))
        return
    if node is not None:
        _Reader(shown, into).file(node)


def _syntax(error: yaml.MarkedYAMLError, text: str, shown: str) -> Problem:
    mark = error.problem_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    said = error.problem or "is not YAML"
    if "another document" in said:
        said = "a file holds one document"
    elif "\t" in "".join(text.splitlines()[line - 1 : line])[:column]:
        said = "a tab cannot indent; use spaces"
    return Problem(shown, line, column, "", said)


class _Reader:
    """Turns nodes into plain data, noting places and problems on the way."""

    def __init__(self, shown: str, into: Document) -> None:
        self.shown = shown
        self.into = into
        self.seen: set[int] = set()

    def file(self, node: yaml.Node) -> None:
        """Merge the sections of a file: a name may be said once in the whole folder."""
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, (), "must be sections such as upstreams: and deployments:")
            return
        for name, key, value in self.pairs(node, ()):
            path: Path_ = (name,)
            self.into.places.setdefault(path, self.at(key))
            if isinstance(value, yaml.MappingNode):
                section = self.into.data.setdefault(name, {})
                self.mapping(value, path, 1, section)
            else:
                self.into.data[name] = self.value(value, path, 1)

    def mapping(
        self, node: yaml.MappingNode, path: Path_, depth: int, into: dict[str, Any]
    ) -> None:
        for name, key, value in self.pairs(node, path):
            inner = (*path, name)
            if name in into:
                self.refuse(key, inner, f"is already said at {self.into.place(inner)}")
                continue
            self.into.places[inner] = self.at(key)
            into[name] = self.value(value, inner, depth + 1)

    def pairs(
        self, node: yaml.MappingNode, path: Path_
    ) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        if not self.plain(node, path):
            return
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.refuse(key, path, "a key must be plain text")
            elif key.value == "<<":
                self.refuse(key, path, "merge keys are not read; say it twice")
            else:
                yield key.value, key, value

    def value(self, node: yaml.Node, path: Path_, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.refuse(node, path, f"is nested deeper than {MAX_DEPTH} levels")
            return None
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Any] = {}
            self.mapping(node, path, depth, mapping)
            return mapping
        if not self.plain(node, path):
            return None
        if isinstance(node, yaml.SequenceNode):
            return [self._item(each, (*path, i), depth) for i, each in enumerate(node.value)]
        return self.scalar(node) if isinstance(node, yaml.ScalarNode) else None

    def _item(self, node: yaml.Node, path: Path_, depth: int) -> Any:
        self.into.places[path] = self.at(node)
        return self.value(node, path, depth + 1)

    def scalar(self, node: yaml.ScalarNode) -> Any:
        text: str = node.value
        if node.style in QUOTED:  # text, whatever it looks like
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text

    def plain(self, node: yaml.Node, path: Path_) -> bool:
        """Refuse what makes YAML more than data: explicit tags, and a node used twice."""
        if id(node) in self.seen:
            self.refuse(node, path, "aliases are not read; say it twice")
            return False
        self.seen.add(id(node))
        if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
            self.refuse(node, path, f"the tag {node.tag} is not read")
            return False
        return True

    def at(self, node: yaml.Node) -> Place:
        return Place(self.shown, node.start_mark.line + 1, node.start_mark.column + 1)

    def refuse(self, node: yaml.Node, path: Path_, message: str) -> None:
        at = self.at(node)
        said = ".".join(map(str, path))
        self.into.problems.append(Problem(at.file, at.line, at.column, said, message))
