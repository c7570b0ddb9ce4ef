"""The characters of which each match of a pattern has one: a text without any is not even read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from proxy.guardrails.matching.re2set import compiled
from proxy.guardrails.matching.within_match import Either, Node, One, Repeat, Several, parsed

ASCII = frozenset(map(chr, range(128)))


def needed_signs(patterns: Iterable[str]) -> frozenset[str]:
    """Return characters such that each match of one of the patterns in ASCII has one of them: all
    of ASCII where nothing less is known."""
    return frozenset().union(*(_needed(parsed(pattern)) for pattern in patterns))


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
