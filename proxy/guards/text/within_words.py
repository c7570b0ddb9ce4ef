"""Marks inside of a word: Markdown, inline tags of HTML, and a hyphen at the end of a line.

A reader of the rendered text, or of the text without its marks, sees one word. Tags that separate
words (``<td>``, ``<br>``) are not included, nor is ``_``, which Markdown ignores inside of a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from proxy.guards.matching.re2set import PatternSet
from proxy.guards.text import base64_text
from proxy.guards.text.confusables import CONTROLS

_INLINE = (
    "abbr|a|bdi|bdo|big|b|cite|code|del|dfn|em|font|ins|i|kbd|mark|q|samp|small|span|strike|strong"
    "|sub|sup|s|tt|u|var|wbr"
)
_TAG = rf"<(?:/?(?:{_INLINE})(?:\s[^<>]{{0,64}})?/?>|!--[^<>]{{0,64}}-->)"
_MARK = rf"(?:[*`]{{1,3}}|~~|{_TAG})"
_FIRST = r"[*`~<-]"
_AFTER_FIRST = (
    r"(?:(?<=[*`])[*`]{0,2}|(?<=~)~"
    rf"|(?<=<)(?:/?(?:{_INLINE})(?:\s[^<>]{{0,64}})?/?>|!--[^<>]{{0,64}}-->))"
)
# A pattern that begins with a character class is searched much faster.
_WITHIN = re.compile(
    rf"{_FIRST}(?:(?<=[\w@.+-]{_FIRST}){_AFTER_FIRST}{_MARK}{{0,3}}+(?=[\w@]|[.+-]\w)"
    r"|(?<=\w-)[ \t]{0,4}\r?\n[ \t]{0,16}(?=\w))",
    re.IGNORECASE,
)
_CUT_TAG = r"(?:/?[a-z]{0,6}(?:\s[^<>]{0,64})?/?|!-{0,2}|!--[^<>]{0,66})"
_OPEN = re.compile(
    rf"{_FIRST}(?:(?<=[\w@.+-]{_FIRST})(?:(?<=<){_CUT_TAG}"
    rf"|{_AFTER_FIRST}{_MARK}{{0,3}}(?:<{_CUT_TAG}|~)?[.+-]?|(?<=~))"
    r"|(?<=\w-)[ \t]{0,4}\r?(?:\n[ \t]{0,16})?)\Z",
    re.IGNORECASE,
)
_LONGEST = 400  # characters of several tags and their neighbors

_W = "[0-9A-Za-z_]"
SIEVE = (
    rf"[0-9A-Za-z_@.+-](?:[*`]|~~|<(?:/?(?i:{_INLINE})(?:\s[^<>]*)?/?|!--[^<>]*)>)+"
    rf"(?:[0-9A-Za-z_@]|[.+-]{_W})|{_W}-[ \t]*\r?\n[ \t]*{_W}"
)
"""RE2 pattern that matches every text of ASCII with something within a word."""

DISGUISES = PatternSet(
    [
        rf"[&%\\{CONTROLS}]",  # an escape, or an invisible character
        rf"{base64_text.ONE}{{{base64_text.RUN}}}|(?i:base64,)",
        SIEVE,
        r"(?:\A|[^A-Za-z])(?:[A-Za-z][^A-Za-z]){2}[A-Za-z](?:[^A-Za-z]|\z)",  # letters apart
    ]
).sieve
"""Matches every text of ASCII that may have another reading."""


def has_one_reading(raw: bytes) -> bool:
    """Return True if a text of ASCII, and each of its lines, has no other reading. For several
    lines it may be False although it is True for each."""
    return DISGUISES.match(raw) == DISGUISES.nothing


def has_signs(text: str) -> bool:
    return "*" in text or "`" in text or "<" in text or "~~" in text or "-" in text


def within_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Return the marks within words, as spans that are dropped."""
    return ((match.start(), match.end(), "") for match in _WITHIN.finditer(text))


def line_ends(text: str) -> Iterator[tuple[int, int, str]]:
    """Return the same, but keep a hyphen at the end of a line, which may belong to the word."""
    for start, end, made in within_words(text):
        yield start + (text[start] == "-"), end, made


def open_within(text: str) -> int:
    """Return the start of marks at the end that may be within a word, or the end of the text."""
    if text[-1:].isalnum() and "<" not in text[-_LONGEST:]:
        return len(text)
    match = _OPEN.search(text, max(0, len(text) - _LONGEST))
    return len(text) if match is None else match.start()
