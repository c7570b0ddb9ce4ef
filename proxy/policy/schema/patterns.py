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
"""Maximum length of values whose match is cached, and maximum number of them."""


def is_plain(value: str) -> bool:
    """Return True if a tag value is short, printable and in Unicode form NFC."""
    return (
        0 < len(value) <= MAX_VALUE
        and value.isprintable()
        and unicodedata.is_normalized("NFC", value)
    )


@frozen
class TagPattern:
    """A compiled pattern. It matches whole plain values."""

    text: str
    _matches: Callable[[str], bool] = field(repr=False, compare=False)

    def fits(self, value: str) -> bool:
        return is_plain(value) and self._matches(value)


def compiled(text: str) -> TagPattern:
    """Compile a pattern. Raise ``ValueError`` if it is invalid."""
    try:
        return TagPattern(text, _matcher(text))
    except ValueError as error:
        raise ValueError(f"is not a valid RE2 pattern: {error}") from None


@frozen
class Glob:
    """A pattern of whole values: ``*`` matches any characters, ``?`` matches one."""

    text: str
    _matches: Callable[[str], bool] = field(repr=False, compare=False)

    def allow(self) -> Callable[[str], bool]:
        return self._matches


def glob(text: str) -> Glob:
    """Compile a glob. Every text is valid."""
    parts = {"*": "(?s:.*)", "?": "(?s:.)"}
    return Glob(text, _matcher("".join(parts.get(c) or f"\\x{{{ord(c):x}}}" for c in text)))


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches whole values, and caches the results for short ones."""
    regex = re2_compiled(pattern)

    def matches(value: str) -> bool:
        try:
            return regex.fullmatch(value.encode()) is not None
        except UnicodeEncodeError:  # half of a surrogate pair matches no pattern
            return False

    cached = lru_cache(MAX_KEPT)(matches)
    return lambda value: cached(value) if len(value) <= MAX_KEPT else matches(value)
