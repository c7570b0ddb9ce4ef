"""Patterns for tag values and globs, in RE2.

Clients send the values, so a backtracking engine could block the process. RE2 runs in linear time
and bounded memory; look-around and backreferences are not supported.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache

from proxy.frozen import frozen
from proxy.guardrails.matching.re2set import compiled as re2_compiled

MAX_VALUE = 64
MAX_KEPT = 256
"""Characters of a value whose match is remembered, and how many of them are."""


def is_plain(value: str) -> bool:
    """True if a tag value is short, visible and in one Unicode form."""
    return (
        0 < len(value) <= MAX_VALUE
        and value.isprintable()
        and unicodedata.is_normalized("NFC", value)
    )


@frozen
class TagPattern:
    """A compiled pattern. It fits plain values only, from their first character to their last."""

    text: str
    _matches: Callable[[str], bool] = field(repr=False, compare=False)

    def fits(self, value: str) -> bool:
        return is_plain(value) and self._matches(value)


def compiled(text: str) -> TagPattern:
    """Compile a pattern. Raises ``ValueError`` saying what is wrong with it."""
    try:
        return TagPattern(text, _matcher(text))
    except ValueError as error:
        raise ValueError(f"is not a valid RE2 pattern: {error}") from None


@frozen
class Glob:
    """A text in which ``*`` stands for any characters and ``?`` for one; it fits whole values."""

    text: str
    _matches: Callable[[str], bool] = field(repr=False, compare=False)

    def fits(self, value: str) -> bool:
        return self._matches(value)


def glob(text: str) -> Glob:
    """Compile a glob; every text is one."""
    parts = {"*": "(?s:.*)", "?": "(?s:.)"}
    return Glob(text, _matcher("".join(parts.get(c) or f"\\x{{{ord(c):x}}}" for c in text)))


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return what says whether a value matches from end to end. It remembers the last short ones,
    as calls repeat them."""
    found = re2_compiled(pattern)

    def matches(value: str) -> bool:
        try:
            return found.fullmatch(value.encode()) is not None
        except UnicodeEncodeError:  # half of a surrogate pair: no pattern means it
            return False

    known = lru_cache(MAX_KEPT)(matches)
    return lambda value: known(value) if len(value) <= MAX_KEPT else matches(value)
