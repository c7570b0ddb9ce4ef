"""Decodes escapes of HTML, URLs, JSON and programming languages."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

_HEX = "[0-9A-Fa-f]"
_PAIR = rf"\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_UNICODE = rf"{_PAIR}|\\u{_HEX}{{4}}"
ESCAPES = re.compile(
    rf"&(?:#[0-9]{{1,12}}(?![0-9]);?|#[xX]{_HEX}{{1,12}}(?!{_HEX});?|[A-Za-z][A-Za-z0-9]{{1,31}};|shy)"
    rf"|(?:%{_HEX}{{2}})+|{_UNICODE}|\\x{_HEX}{{2}}|\\u\{{{_HEX}{{1,6}}\}}|\\U{_HEX}{{8}}"
)
"""Escapes in a text. A number of HTML may lack its ``;``."""
IN_JSON = re.compile(rf'{_UNICODE}|\\["\\/bfnrt]')
"""Escapes of a JSON string."""

_TAIL = 48  # more than the longest escape
_CUT_PAIR = rf"\\u[dD][89abAB]{_HEX}{{2}}(?:\\(?:u{_HEX}{{0,3}})?)?|\\u{_HEX}{{0,3}}"
_PENDING = re.compile(
    rf"(?:&(?:#(?:[0-9]{{0,12}}|[xX]{_HEX}{{0,12}})|[A-Za-z][A-Za-z0-9]{{0,31}})?|(?:%{_HEX}{{2}}){{0,3}}%{_HEX}?|(?:%[89A-Fa-f]{_HEX}){{1,3}}"
    rf"|{_CUT_PAIR}|\\x{_HEX}?|\\u\{{{_HEX}{{0,6}}|\\U{_HEX}{{0,7}}|\\)\Z"
)
_PENDING_IN_JSON = re.compile(rf"(?:{_CUT_PAIR}|(?<!\\)(?:\\\\)*\\)\Z")


def has_escapes(text: str) -> bool:
    return "&" in text or "%" in text or "\\" in text


def unescaped(text: str, escapes: re.Pattern[str] = ESCAPES) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of escapes with their characters."""
    for match in escapes.finditer(text):
        escape = match.group()
        if escape[0] == "%":
            yield from _percents(escape, match.start())
            continue
        try:
            made = _letter(escape)
        except ValueError:
            continue
        if made != escape and not any("\ud800" <= each <= "\udfff" for each in made):
            yield match.start(), match.end(), made


def _letter(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[1] in "xU":
        return chr(int(escape[2:], 16))
    return chr(int(escape[3:-1], 16)) if escape[2:3] == "{" else str(json.loads(f'"{escape}"'))


def _percents(escapes: str, at: int) -> Iterator[tuple[int, int, str]]:
    """Decode UTF-8 character by character. Invalid bytes stay escaped."""
    raw = bytes.fromhex(escapes.replace("%", ""))
    place = 0
    while place < len(raw):
        lead = raw[place]
        size = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        try:
            made = raw[place : place + size].decode()
        except UnicodeDecodeError:
            place += 1
            continue
        yield at + 3 * place, at + 3 * (place + size), made
        place += size


def pending_escape(text: str, *, in_json: bool = False) -> int:
    """Return the start of an incomplete escape at the end, or the end of the text."""
    tail = text[-_TAIL:]
    if has_escapes(tail):
        pending = (_PENDING_IN_JSON if in_json else _PENDING).search(tail)
        if pending is not None:
            return len(text) - len(tail) + pending.start()
    return len(text)
