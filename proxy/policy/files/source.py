"""What policy files say, as plain data that knows where each of its parts was written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any

from proxy.frozen import frozen

Path_ = tuple[str | int, ...]
Finding = tuple[Path_, str]
"""Where something is doubtful or wrong, and what."""
KEY = re.compile(r"(?<![\w.-])([\w.-]{1,64})[\"']?\s*:")


@frozen
class SourceLocation:
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
    """The policies cannot be taken into force; it names all that is wrong, in order.

    ``secret_files`` are the paths of secrets that they refer to, and the references of tokens: a
    change of one may be all that they need.
    """

    def __init__(
        self, problems: Iterable[Problem], secret_files: frozenset[str] = frozenset()
    ) -> None:
        self.problems = tuple(sorted(set(problems)))
        self.secret_files = secret_files
        super().__init__("\n".join(map(str, self.problems)))


def unexpected(error: Exception) -> str:
    """Return the message for an error that no check expects. It holds no values: they may be
    secrets."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    name = type(error).__name__
    return f"cannot be read: unexpected {name} at {frame.f_globals['__name__']}:{line}"


@dataclass(slots=True)
class Document:
    """Plain data of one or several files, and the place of each key and value by its path.

    ``folder`` is its name, the place of what no file says. ``texts`` are the files that it names,
    or what is wrong with one. ``unread`` are the texts of files that could not be read to their
    end, None for one of which nothing is known, and ``keys`` the words in them that may be keys.
    ``left_out`` are parts of a wrong shape, without which the rest is looked at, ``altered`` those
    that hold one, and ``numbers`` those that items of their lists have in the files. ``empty`` are
    the sections that say ``{}``.
    """

    folder: str = "policies"
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path_, SourceLocation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    texts: dict[str, str | ValueError] = field(default_factory=dict)
    unread: list[str | None] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    left_out: set[Path_] = field(default_factory=set)
    altered: set[Path_] = field(default_factory=set)
    numbers: dict[Path_, list[int]] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)

    @property
    def whole(self) -> bool:
        """True if every file could be read to its end."""
        return not self.unread

    def may_name(self, section: str, name: str) -> bool:
        """True if a section may have a name in what could not be read."""
        return None in self.unread or (section,) in self.left_out or name in self.keys

    def may_hold(self, name: str) -> bool:
        """True if a name may stand in what is left out or could not be read."""
        texts = (text for path in self.left_out for text in _texts_in(self._at(path)))
        return name in texts or any(text is None or name in text for text in self.unread)

    def _at(self, path: Path_) -> Any:
        """Return what is written at a path; None for a field that is missing."""
        value: Any = self.data
        for part in path:
            value = value.get(part) if isinstance(value, dict) else value[part]
        return value

    def text(self, name: str) -> str:
        """Return the content of a text file. Raise ``ValueError`` with what is wrong with it."""
        text = self.texts[name]
        if isinstance(text, ValueError):
            raise text
        return text

    def place(self, path: Path_) -> SourceLocation:
        """Return the location of a path, or of the nearest part of it that is written down."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, SourceLocation(self.folder, 1, 1))

    def written(self, path: Path_) -> Path_:
        """Leave out the parts of a path that only the long form of what is written has."""
        kept: Path_ = ()
        for part in path:
            kept = (*kept, part) if (*kept, part) in self.places else kept
        return kept

    def leave_out(self, path: Path_) -> None:
        """Note a part that is not looked at."""
        self.left_out.add(path)
        self.altered.update(path[:length] for length in range(1, len(path) + 1))

    def numbered(self, path: Path_) -> Path_:
        """Return a path of what is left with the numbers that items have in the files."""
        found: Path_ = ()
        for part in path:
            numbers = self.numbers.get(found)
            at = numbers[part] if numbers and isinstance(part, int) else part
            found = (*found, at)
        return found

    def origin(self, path: Path_) -> Path_:
        """Return where a part of what is left is written."""
        kept: Path_ = ()
        for part in path:
            numbers = self.numbers.get(kept)
            at = numbers[part] if numbers and isinstance(part, int) else part
            kept = (*kept, at) if (*kept, at) in self.places else kept
        return kept

    def raise_problems(self) -> None:
        """Raise ``PolicyError`` if anything is wrong."""
        if self.problems:
            raise PolicyError(self.problems)

    @contextmanager
    def located(self, path: Path_) -> Iterator[None]:
        """Turn an unexpected error into a problem of the part at ``path``; of nested parts the
        innermost is named.

        Raises:
            PolicyError: The part cannot be read.
        """
        try:
            yield
        except PolicyError:
            raise
        except Exception as error:
            self.refuse(self.place(path), path, unexpected(error))
            raise PolicyError(self.problems) from error

    def complain(self, path: Path_, message: str) -> None:
        """Note what is wrong with a part, unless something is left out of it: that may be all that
        is wrong with it."""
        path = self.numbered(path)
        if path not in self.altered:
            self.refuse(self.place(path), path, message)

    def give_up(
        self, at: SourceLocation, path: Path_, message: str, text: str | None = None
    ) -> None:
        """Refuse what keeps the rest of a file, or a whole folder, from being read. ``text`` is
        that of the file, where it is known."""
        self.unread.append(text)
        self.keys.update(KEY.findall(text or ""))
        self.refuse(at, path, message)

    def refuse(self, at: SourceLocation, path: Path_, message: str) -> None:
        self.problems.append(problem_at(at, path, message))


def problem_at(at: SourceLocation, path: Path_, message: str) -> Problem:
    return Problem(
        file=at.file, line=at.line, column=at.column, path=path_text(path), message=message
    )


def path_text(path: Path_) -> str:
    """Return a path such as ``deployments.chat.targets[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _texts_in(value: Any) -> Iterator[str]:
    """Yield all texts within plain data."""
    if isinstance(value, str):
        yield value
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(value, dict | list) else ():
        yield from _texts_in(part)
