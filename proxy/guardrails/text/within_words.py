"""What stands within a word and is not of it: marks of Markdown, tags of HTML within a line, and a
hyphen with the end of a line.

Who reads the text as it is shown, or without its marks, sees one word. Tags that part words
(``<td>``, ``<br>``) are not among them, nor is ``_``, which parts no word in Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_INLINE = (
    "abbr|a|bdi|bdo|big|b|cite|code|del|dfn|em|font|ins|i|kbd|mark|q|samp|small|span|strike|strong"
    "|sub|sup|s|tt|u|var|wbr"
)
_TAG = rf"<(?:/?(?:{_INLINE})(?:\s[^<>]{{0,64}})?/?>|!--[^<>]{{0,64}}-->)"
_MARK = rf"(?:[*`]{{1,3}}|~~|{_TAG})"
_FIRST = r"[*`~<-]"
_AFTER_FIRST = (  # of what begins with such a character
    r"(?:(?<=[*`])[*`]{0,2}|(?<=~)~"
    rf"|(?<=<)(?:/?(?:{_INLINE})(?:\s[^<>]{{0,64}})?/?>|!--[^<>]{{0,64}}-->))"
)
# The first character comes first, as what begins with a class is looked for much faster.
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
_LONGEST = 400  # characters of several tags, and of what is before and after them

_W = "[0-9A-Za-z_]"
SIEVE = (
    rf"[0-9A-Za-z_@.+-](?:[*`]|~~|<(?:/?(?i:{_INLINE})(?:\s[^<>]*)?/?|!--[^<>]*)>)+"
    rf"(?:[0-9A-Za-z_@]|[.+-]{_W})|{_W}-[ \t]*\r?\n[ \t]*{_W}"
)
"""A pattern of RE2 that each text of ASCII has in which something stands within a word."""


def has_signs(text: str) -> bool:
    return "*" in text or "`" in text or "<" in text or "~~" in text or "-" in text


def within_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Return what stands within words, as places that are dropped."""
    return ((match.start(), match.end(), "") for match in _WITHIN.finditer(text))


def line_ends(text: str) -> Iterator[tuple[int, int, str]]:
    """Return the same, but of a hyphen at the end of a line that end alone, as the hyphen may be of
    the word."""
    for start, end, made in within_words(text):
        yield start + (text[start] == "-"), end, made


def open_within(text: str) -> int:
    """Return where something at the end begins that may stand within a word; else the end of the
    text."""
    if text[-1:].isalnum() and "<" not in text[-_LONGEST:]:
        return len(text)
    match = _OPEN.search(text, max(0, len(text) - _LONGEST))
    return len(text) if match is None else match.start()
