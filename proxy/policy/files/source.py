"""Data of policy files with the locations of all parts, and their problems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any

from proxy.runtime.frozen import frozen

KeyPath = tuple[str | int, ...]
"""Keys and list indexes that lead to a part of the policies."""
Finding = tuple[KeyPath, str]
"""The path of a part, and the problem with it."""
KEY = re.compile(r"(?<![\w.-])([\w.-]{1,64})[\"']?\s*:")


@frozen
class SourceLocation:
    """A position in a file. Lines and columns start at 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """An error or a warning, with its location."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}:{self.column}: {where}{self.message}"


class PolicyError(Exception):
    """Policies are invalid. It lists all problems in order.

    ``secret_files`` are the files and tokens that they refer to. A change of one may fix them.
    """

    def __init__(
        self, problems: Iterable[Problem], secret_files: frozenset[str] = frozenset()
    ) -> None:
        self.problems = tuple(sorted(set(problems)))
        self.secret_files = secret_files
        super().__init__("\n".join(map(str, self.problems)))


def unexpected(error: Exception) -> str:
    """Return the message for an unexpected error. It contains no values, which may be secrets."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    name = type(error).__name__
    return f"cannot be read: unexpected {name} at {frame.f_globals['__name__']}:{line}"


@dataclass(slots=True)
class Document:
    """Data of one or several files, with the location of each key and value by its path.

    ``folder`` is its name, the location of problems in no file. ``texts`` are the text files that
    it names, or their problems. ``unread`` are the texts of files with syntax errors (None if
    unknown), and ``keys`` the words in them that may be keys. ``left_out`` are the paths of invalid
    parts, ``altered`` those of parts that contain one, and ``numbers`` the original indexes of
    their list items. ``empty`` are the sections that are ``{}``.
    """

    folder: str = "policies"
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, SourceLocation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    texts: dict[str, str | ValueError] = field(default_factory=dict)
    unread: list[str | None] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    left_out: set[KeyPath] = field(default_factory=set)
    altered: set[KeyPath] = field(default_factory=set)
    numbers: dict[KeyPath, list[int]] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)

    @property
    def whole(self) -> bool:
        """True if every file was read to its end."""
        return not self.unread

    def may_name(self, section: str, name: str) -> bool:
        """Return True if a section may contain a name in a file that was not read."""
        return None in self.unread or (section,) in self.left_out or name in self.keys

    def may_hold(self, name: str) -> bool:
        """Return True if a name may occur in parts that are left out or were not read."""
        texts = (text for path in self.left_out for text in _texts_in(self._at(path)))
        return name in texts or any(text is None or name in text for text in self.unread)

    def _at(self, path: KeyPath) -> Any:
        """Return the value at a path, or None for a missing field."""
        value: Any = self.data
        for part in path:
            value = value.get(part) if isinstance(value, dict) else value[part]
        return value

    def text(self, name: str) -> str:
        """Return the content of a text file. Raise ``ValueError`` with its problem."""
        text = self.texts[name]
        if isinstance(text, ValueError):
            raise text
        return text

    def place(self, path: KeyPath) -> SourceLocation:
        """Return the location of a path, or of its nearest parent that has one."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, SourceLocation(self.folder, 1, 1))

    def written(self, path: KeyPath) -> KeyPath:
        """Return a path as in the files, which may use a short form with fewer levels."""
        kept: KeyPath = ()
        for part in path:
            kept = (*kept, part) if (*kept, part) in self.places else kept
        return kept

    def leave_out(self, path: KeyPath) -> None:
        """Record a part that is left out."""
        self.left_out.add(path)
        self.altered.update(path[:length] for length in range(1, len(path) + 1))

    def numbered(self, path: KeyPath) -> KeyPath:
        """Return a path with the original indexes of list items."""
        original: KeyPath = ()
        for part in path:
            indexes = self.numbers.get(original)
            original = (*original, indexes[part] if indexes and isinstance(part, int) else part)
        return original

    def origin(self, path: KeyPath) -> KeyPath:
        """Return the path in the files of a part that is not left out."""
        original: KeyPath = ()
        for part in path:
            indexes = self.numbers.get(original)
            step = indexes[part] if indexes and isinstance(part, int) else part
            original = (*original, step) if (*original, step) in self.places else original
        return original

    def raise_problems(self) -> None:
        """Raise ``PolicyError`` if there are problems."""
        if self.problems:
            raise PolicyError(self.problems)

    @contextmanager
    def located(self, path: KeyPath) -> Iterator[None]:
        """Convert an unexpected error to a ``PolicyError`` that names the part at ``path``, of
        nested parts the innermost."""
        try:
            yield
        except PolicyError:
            raise
        except Exception as error:
            self.refuse(self.place(path), path, unexpected(error))
            raise PolicyError(self.problems) from error

    def complain(self, path: KeyPath, message: str) -> None:
        """Report a problem of a part. A part that lacks something may be invalid only because of
        that, so its problem is not reported."""
        path = self.numbered(path)
        if path not in self.altered:
            self.refuse(self.place(path), path, message)

    def give_up(
        self, at: SourceLocation, path: KeyPath, message: str, text: str | None = None
    ) -> None:
        """Report a problem that prevents reading the rest of a file, whose ``text`` may be known,
        or a folder."""
        self.unread.append(text)
        self.keys.update(KEY.findall(text or ""))
        self.refuse(at, path, message)

    def refuse(self, at: SourceLocation, path: KeyPath, message: str) -> None:
        self.problems.append(problem_at(at, path, message))


def problem_at(at: SourceLocation, path: KeyPath, message: str) -> Problem:
    return Problem(
        file=at.file, line=at.line, column=at.column, path=path_text(path), message=message
    )


def path_text(path: KeyPath) -> str:
    """Return a path such as ``deployments.chat.targets[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _texts_in(value: Any) -> Iterator[str]:
    """Yield all texts in data."""
    if isinstance(value, str):
        yield value
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(value, dict | list) else ():
        yield from _texts_in(part)
