"""The characters of which each match of a pattern has one: a text without any is not even read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from proxy.guardrails.matching.re2set import compiled
from proxy.guardrails.matching.within_match import Either, Node, One, Repeat, Several, parsed
from proxy.guardrails.matching.worked_out import digest, worked_out

ASCII = frozenset(map(chr, range(128)))


def needed_signs(patterns: Iterable[str]) -> frozenset[str]:
    """Return characters such that each match of one of the patterns in ASCII has one of them: all
    of ASCII where nothing less is known."""
    return frozenset().union(*map(_signs, patterns))


def _signs(pattern: str) -> Iterable[str]:
    kept = worked_out()["needed_signs"].get(digest(pattern))
    return work_out_signs(pattern) if kept is None else kept


def work_out_signs(pattern: str) -> frozenset[str]:
    """Return the ``needed_signs`` of one pattern."""
    return _needed(parsed(pattern))


def _needed(node: Node) -> frozenset[str]:
    match node:
        case One(text):
            return _class(text)
        case Several(parts):
            return min(map(_needed, parts), key=len, default=ASCII)
        case Either(branches):
            return frozenset().union(*map(_needed, branches))
        case Repeat(part, least, _) if least:
            return _needed(part)
        case _:
            return ASCII


@lru_cache(maxsize=1024)
def _class(letter: str) -> frozenset[str]:
    """Return the characters that a pattern of one of them stands for."""
    found = compiled(letter)
    return frozenset(each for each in ASCII if found.fullmatch(each) is not None)
