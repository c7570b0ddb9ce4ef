"""Reads the lists ``revoked`` of a folder, independently of everything else in it.

Each file is read on its own, so that no problem elsewhere delays a revocation.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from proxy.policy.files.load import MAX_WALKED, files_below, printable, shown_as
from proxy.policy.files.source import Document, Problem, problem_at, unexpected
from proxy.policy.files.yaml_reader import parse, read_bytes
from proxy.policy.schema.keys import NOT_A_REVOCATION, is_revocation
from proxy.runtime.frozen import frozen

SECTION = "revoked"
MAY_REVOKE = re.compile(rb"revoked|\0|\\[xuU]")
"""Occurs in every file with a list: the word, NUL bytes of UTF-16, or an escaped letter."""
LIST = re.compile(
    rb"^(?:\xef\xbb\xbf)?([\"']?revoked[\"']?[ \t]*:.*+(?:\n(?:[ \t\r\]#-].*+)?)*+)", re.MULTILINE
)
"""A list at the left margin, which is read on its own if the rest of its file is invalid."""
AFTER_LIST = re.compile(rb"\n?(?:\Z|\.\.\.|[^\s#<>=|@:-][^\n:]*:)")
"""Follows a complete list: the end of the file or another key."""


@frozen
class Revocations:
    """Revoked keys, by name or digest. ``unread`` are the places that may revoke others."""

    names: frozenset[str]
    unread: tuple[str, ...] = ()


def read_revocations(folder: Path, max_entries: int = MAX_WALKED) -> Revocations:
    """Return the revocations of all files below a folder. Raise nothing."""
    names: set[str] = set()
    unread: list[str] = []
    try:
        walk = Document(folder=shown_as(folder))
        for file in files_below(folder, walk, "tests", max_entries):
            entries, problems = _read(file, printable(file.relative_to(folder)))
            names.update(filter(is_revocation, entries))
            unread += map(str, problems)
        unread += map(str, walk.problems)
    except Exception as error:  # noqa: BLE001  # the names read so far are revoked
        unread.append(unexpected(error))
    return Revocations(frozenset(names), tuple(dict.fromkeys(unread)))


def _read(file: Path, shown: str) -> tuple[list[Any], list[Problem]]:
    """Return the entries of a file's list, and the problems that may hide others."""
    document, lists = Document(), Document()
    raw = read_bytes(file, shown, document)
    if document.whole and not MAY_REVOKE.search(raw):
        return [], []
    if is_readable := document.whole:
        parse(raw, shown, document)
    found = [] if document.whole else list(LIST.finditer(raw))
    blocks = b"".join(match[1] for match in found)
    if blocks:
        parse(blocks, shown, lists)
    entries = [*document.data.get(SECTION, ()), *lists.data.get(SECTION, ())]
    problems = [each for each in document.problems if re.match(rf"{SECTION}(\[|$)", each.path)]
    if not all(map(is_revocation, entries)):
        place = document.place((SECTION,))
        problems.append(problem_at(place, (SECTION,), NOT_A_REVOCATION))
    has_ends = all(AFTER_LIST.match(raw, match.end()) for match in found)
    is_complete = is_readable and blocks and has_ends and not lists.problems
    if not document.whole and not is_complete:
        problems.append(document.problems[-1])
    return entries, problems
