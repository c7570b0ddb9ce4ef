"""Data of policy files with the locations of all parts, and their problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from traceback import walk_tb
from typing import Any, NamedTuple

from proxy.runtime.frozen import frozen

KeyPath = tuple[str | int, ...]
"""Keys and list indexes that lead to a part of the policies."""
Finding = tuple[KeyPath, str]
"""The path of a part, and the problem with it."""


class SourceLocation(NamedTuple):
    """A position in a file. Lines and columns start at 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Problem(NamedTuple):
    """An error or a warning, with its location and the path of the part."""

    location: SourceLocation
    path: str
    message: str

    def __str__(self) -> str:
        path = f"{self.path}: " if self.path else ""
        return f"{self.location}: {path}{self.message}"


@frozen
class Rejection:
    """Time and problems of a rejected reload."""

    at: datetime
    problems: tuple[str, ...]


class PolicyError(Exception):
    """Policies are invalid. ``problems`` are sorted by location.

    ``secret_files`` are the secrets to which the policies refer. A change of one may fix a problem.
    """

    def __init__(
        self, problems: Iterable[Problem], secret_files: frozenset[str] = frozenset()
    ) -> None:
        self.problems = tuple(sorted(set(problems)))
        self.secret_files = secret_files
        super().__init__("\n".join(map(str, self.problems)))


def describe_unexpected_error(error: Exception) -> str:
    """Return the message for an unexpected error. It contains no values, which may be secrets."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    name, module = type(error).__name__, frame.f_globals["__name__"]
    return f"cannot be read: unexpected {name} at {module}:{line}"


@dataclass(slots=True)
class Document:
    """Merged data of policy files, with the source location of each key and value.

    Attributes:
        folder: Name of the folder, for problems that have no file.
        texts: Contents of the text files that policies name, or the error of reading a file.
        is_complete: True if every file was read to its end.
        empty_sections: Sections that are ``{}``.
    """

    folder: str = "policies"
    data: dict[str, Any] = field(default_factory=dict)
    locations: dict[KeyPath, SourceLocation] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    texts: dict[str, str | ValueError] = field(default_factory=dict)
    is_complete: bool = True
    empty_sections: set[str] = field(default_factory=set)

    def get_text(self, name: str) -> str:
        """Return the content of a text file. Raise ``ValueError`` with its problem."""
        text = self.texts[name]
        if isinstance(text, ValueError):
            raise text
        return text

    def get_location(self, path: KeyPath) -> SourceLocation:
        """Return the location of a path, or of its nearest parent that has one."""
        while path and path not in self.locations:
            path = path[:-1]
        return self.locations.get(path, SourceLocation(self.folder, 1, 1))

    def get_written_path(self, path: KeyPath) -> KeyPath:
        """Return a path as in the files, which may use a short form with fewer levels."""
        located: KeyPath = ()
        for part in path:
            located = (*located, part) if (*located, part) in self.locations else located
        return located

    def raise_problems(self) -> None:
        """Raise ``PolicyError`` if there are problems."""
        if self.problems:
            raise PolicyError(self.problems)

    @contextmanager
    def wrap_errors_in_policy_error(self, path: KeyPath) -> Iterator[None]:
        """Context manager: an unexpected error becomes a ``PolicyError`` that names ``path``."""
        try:
            yield
        except PolicyError:
            raise
        except Exception as error:
            self.report(path, describe_unexpected_error(error))
            raise PolicyError(self.problems) from error

    def report(self, path: KeyPath, message: str) -> None:
        self.report_at(self.get_location(path), path, message)

    def report_at(self, location: SourceLocation, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(location, format_path(path), message))

    def report_incomplete(self, location: SourceLocation, path: KeyPath, message: str) -> None:
        """Report a problem because of which the rest of a file or a folder is not read."""
        self.is_complete = False
        self.report_at(location, path, message)


def format_path(path: KeyPath) -> str:
    """Return a path such as ``deployments.chat.targets[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")
