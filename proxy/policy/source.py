"""What policy files say, as plain data that knows where each of its parts was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
    """The policies cannot be taken into force; it names all that is wrong, in order.

    ``revoked`` are the keys and digests that they revoke all the same.
    """

    def __init__(self, problems: list[Problem], revoked: frozenset[str] = frozenset()) -> None:
        self.problems = tuple(sorted(set(problems)))
        self.revoked = revoked
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(slots=True)
class Document:
    """Plain data of one or several files, and the place of each key and value by its path.

    ``texts`` are the files that it names, or what is wrong with one.
    It is ``whole`` while every file could be read to its end: then a name that is not here is
    nowhere.
    """

    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Path_, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    whole: bool = True
    texts: dict[str, str | ValueError] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Give what a file says. Raises ``ValueError`` with what is wrong with it."""
        said = self.texts[name]
        if isinstance(said, ValueError):
            raise said
        return said

    def place(self, path: Path_) -> Place:
        """Give the place of a path, or of the nearest part of it that is written down."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place("policies", 1, 1))

    def written(self, path: Path_) -> Path_:
        """Leave out the parts of a path that only the long form of what is written has."""
        kept: Path_ = ()
        for part in path:
            kept = (*kept, part) if (*kept, part) in self.places else kept
        return kept

    def complain(self, path: Path_, message: str) -> None:
        self.refuse(self.place(path), path, message)

    def give_up(self, at: Place, path: Path_, message: str) -> None:
        """Refuse what keeps the rest of a file, or a whole folder, from being read."""
        self.whole = False
        self.refuse(at, path, message)

    def refuse(self, at: Place, path: Path_, message: str) -> None:
        said = ".".join(map(str, path))
        self.problems.append(Problem(at.file, at.line, at.column, said, message))
