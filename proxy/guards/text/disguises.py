"""Disguises of a text: escapes, marks within words, look-alikes, and letters with marks."""

from __future__ import annotations

import html
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, starmap
from pathlib import Path
from unicodedata import combining, decomposition, is_normalized, normalize

from proxy.guards.matching.re2set import LONE_SURROGATES, PatternSet
from proxy.guards.text import base64_text
from proxy.runtime.frozen import frozen

_DATA = Path(__file__).parent / "data"
_LOOK_ALIKES = tomllib.loads((_DATA / "confusables.toml").read_text("utf-8"))

LOOK_ALIKES: dict[int, str] = {
    ord(look): plain
    for table in _LOOK_ALIKES.values()
    for plain, looks in table.items()
    for look in looks
}
"""Maps a code point to the ASCII character that it looks like, so that positions stay."""

_CLASSES = tomllib.loads((_DATA / "characters.toml").read_text("utf-8"))
CONTROLS: str = _CLASSES["controls"]
"""Inside of a character class: invisible controls of ASCII, without tabs and line feeds."""
INVISIBLE: str = CONTROLS + _CLASSES["invisible"]
"""Inside of a character class: invisible characters and changes of the writing direction."""
TAGS: str = _CLASSES["tags"]
"""Inside of a character class: invisible tags of ASCII, which a model reads."""
COMPOSING = re.compile(f"[{_CLASSES['joining']}]")
"""Characters other than marks that compose with the one before them (vowel signs, jamo)."""
MARKS: str = _CLASSES["marks"]
"""Inside of a character class: marks that occur on letters of other scripts."""


_HEX = "[0-9A-Fa-f]"
_PAIR = rf"\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_UNICODE = rf"{_PAIR}|\\u{_HEX}{{4}}"
ESCAPES = re.compile(
    rf"&(?:#[0-9]{{1,12}}(?![0-9]);?|#[xX]{_HEX}{{1,12}}(?!{_HEX});?|[A-Za-z][A-Za-z0-9]{{1,31}};|shy)"
    rf"|(?:%{_HEX}{{2}})+|{_UNICODE}|\\x{_HEX}{{2}}|\\u\{{{_HEX}{{1,6}}\}}|\\U{_HEX}{{8}}"
)
"""Escapes in a text. A number of HTML may lack its ``;``."""
JSON_ESCAPES = re.compile(rf'{_UNICODE}|\\["\\/bfnrt]')
"""Escapes of a JSON string."""

_MAX_ESCAPE_CHARS = 48  # more than the longest escape
_CUT_PAIR = rf"\\u[dD][89abAB]{_HEX}{{2}}(?:\\(?:u{_HEX}{{0,3}})?)?|\\u{_HEX}{{0,3}}"
_PENDING = re.compile(
    rf"(?:&(?:#(?:[0-9]{{0,12}}|[xX]{_HEX}{{0,12}})|[A-Za-z][A-Za-z0-9]{{0,31}})?|(?:%{_HEX}{{2}}){{0,3}}%{_HEX}?|(?:%[89A-Fa-f]{_HEX}){{1,3}}"
    rf"|{_CUT_PAIR}|\\x{_HEX}?|\\u\{{{_HEX}{{0,6}}|\\U{_HEX}{{0,7}}|\\)\Z"
)
_PENDING_IN_JSON = re.compile(rf"(?:{_CUT_PAIR}|(?<!\\)(?:\\\\)*\\)\Z")


def may_have_escapes(text: str) -> bool:
    return "&" in text or "%" in text or "\\" in text


def find_escapes(text: str, escapes: re.Pattern[str] = ESCAPES) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of escapes with their characters."""
    for match in escapes.finditer(text):
        escape = match.group()
        if escape[0] == "%":
            yield from _decode_percent_escapes(escape, match.start())
            continue
        try:
            decoded = _decode_escape(escape)
        except ValueError:  # not a character
            continue
        if decoded != escape and not LONE_SURROGATES.search(decoded):
            yield match.start(), match.end(), decoded


def _decode_escape(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[1] in "xU":
        return chr(int(escape[2:], 16))
    return chr(int(escape[3:-1], 16)) if escape[2:3] == "{" else str(json.loads(f'"{escape}"'))


def _decode_percent_escapes(escapes: str, offset: int) -> Iterator[tuple[int, int, str]]:
    """Decode UTF-8 character by character. Invalid bytes stay escaped."""
    raw = bytes.fromhex(escapes.replace("%", ""))
    place = 0
    while place < len(raw):
        lead = raw[place]
        size = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        try:
            character = raw[place : place + size].decode()
        except UnicodeDecodeError:
            place += 1
            continue
        yield offset + 3 * place, offset + 3 * (place + size), character
        place += size


def find_incomplete_escape(text: str, *, in_json: bool = False) -> int:
    """Return the start of an incomplete escape at the end, or the end of the text."""
    tail = text[-_MAX_ESCAPE_CHARS:]
    pattern = _PENDING_IN_JSON if in_json else _PENDING
    pending = pattern.search(tail) if may_have_escapes(tail) else None
    return len(text) if pending is None else len(text) - len(tail) + pending.start()


MAX_MARKS = 30  # combining marks per letter
_MAX_RANGE_GAP = 16  # a larger gap between two changing characters starts a new range

# Code points that may change. The others are Han, Hangul, private use and unassigned.
_CHANGING_RANGES = (
    (0x80, 0x3400), (0xA000, 0xAC00), (0xD7B0, 0xD800), (0xF900, 0x1F300), (0x1FB00, 0x20000),
    (0x2F800, 0x2FA20),
)  # fmt: skip


def _may_compose(character: str) -> bool:
    """Return True if a character may compose with the one before it."""
    if character < "\u0300":
        return False
    base = normalize("NFKD", character)[0]
    return combining(base) > 0 or COMPOSING.match(base) is not None


def _iter_nfkc_affected_characters() -> Iterator[str]:
    """Yield the characters that NFKC changes or composes, in order."""
    for character in map(chr, chain.from_iterable(starmap(range, _CHANGING_RANGES))):
        if combining(character) or decomposition(character) or COMPOSING.match(character):
            yield character


def _build_character_class(characters: Iterable[str], max_step: int = 1) -> str:
    """Return the inside of a character class. Ranges join code points ``max_step`` apart."""
    ranges: list[list[str]] = []
    for character in sorted(characters):
        if ranges and ord(character) - ord(ranges[-1][1]) <= max_step:
            ranges[-1][1] = character
        else:
            ranges.append([character, character])
    return "".join(f"{low}-{high}" for low, high in ranges)


@frozen
class NfkcEffects:
    """Effects of NFKC normalization.

    - ``single_replacements`` maps code points to characters, and ``single_pattern`` matches a run
      of these code points.
    - ``cluster_pattern`` matches a letter with marks, or a letter that becomes several.
    - ``reversed_marks_pattern`` matches the trailing marks of a text, in reverse order.
    """

    single_replacements: Mapping[int, str]
    single_pattern: re.Pattern[str]
    cluster_pattern: re.Pattern[str]
    reversed_marks_pattern: re.Pattern[str]


@cache
def get_nfkc_effects() -> NfkcEffects:
    """Return the effects of NFKC in this version of Unicode.

    Computing them takes 15 ms. If there are guards, a thread computes them at the start.
    """
    every = [*_iter_nfkc_affected_characters()]
    alone = {each: normalize("NFKC", each) for each in every if not _may_compose(each)}
    singles = {ord(c): form for c, form in alone.items() if len(form) == 1 and form != c}
    several = _build_character_class(c for c, form in alone.items() if len(form) > 1)
    joined = _build_character_class(filter(_may_compose, every))
    single_class = _build_character_class(map(chr, singles), _MAX_RANGE_GAP)
    return NfkcEffects(
        single_replacements=singles,
        single_pattern=re.compile(f"[{single_class}]+"),
        cluster_pattern=re.compile(f".?[{joined}]+|[{several}]", re.DOTALL),
        reversed_marks_pattern=re.compile(f"[{joined}]*"),
    )


_FOREIGN = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+", re.DOTALL)
_MARK = re.compile(f"[{MARKS}]")
_ALL_MARKS = re.compile(f"[{MARKS}]+")


def has_combining_marks(text: str) -> bool:
    return _MARK.search(text) is not None


def apply_one_to_one_nfkc(text: str) -> str:
    """Replace each character that NFKC maps to exactly one character.

    Characters that become several, or that compose with neighbors, stay.
    """
    table = get_nfkc_effects()
    return table.single_pattern.sub(
        lambda match: match.group().translate(table.single_replacements), text
    )


def find_nfkc_cluster_edits(text: str, *, strip_marks: bool) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of NFKC changes that ``apply_one_to_one_nfkc`` omits, and their text.

    Marks beyond ``MAX_MARKS`` stay. ``strip_marks`` removes all combining marks of Latin letters.
    """
    cluster_pattern = get_nfkc_effects().cluster_pattern
    for run in _FOREIGN.finditer(text):
        has_marks = strip_marks and has_combining_marks(run.group())
        if is_normalized("NFKC", run.group()) and not has_marks:
            continue
        for match in cluster_pattern.finditer(text, *run.span()):
            letter, extra_marks = match.group()[: 1 + MAX_MARKS], match.group()[1 + MAX_MARKS :]
            middle = match.start() + len(letter)
            composed = _normalize_letter(letter) if strip_marks else normalize("NFKC", letter)
            if composed != letter:
                yield match.start(), middle, composed
            if strip_marks and has_combining_marks(extra_marks):
                yield middle, match.end(), _MARK.sub("", extra_marks)


def find_last_cluster_start(text: str) -> int:
    """Return the start of the last letter with its marks, which a following mark may change."""
    if not text or text[-1] < "\u0300":
        return max(0, len(text) - 1)
    match = get_nfkc_effects().reversed_marks_pattern.match(text[: -MAX_MARKS - 2 : -1])
    marks = match.end() if match else 0
    return len(text) if marks > MAX_MARKS else max(0, len(text) - marks - 1)


def _normalize_letter(cluster: str) -> str:
    """Return a letter with its marks in NFKC.

    A Latin letter, or one that looks like it, becomes an ASCII letter without marks.
    """
    base = normalize("NFKC", cluster[0]).translate(LOOK_ALIKES)
    marks = _ALL_MARKS.fullmatch(cluster, 1)
    return base if marks and base.isascii() else normalize("NFKC", cluster)


_INLINE = (
    "abbr|a|bdi|bdo|big|b|cite|code|del|dfn|em|font|ins|i|kbd|mark|q|samp|small|span|strike|strong"
    "|sub|sup|s|tt|u|var|wbr"
)
_TAG = rf"<(?:/?(?:{_INLINE})(?:\s[^<>]{{0,64}})?/?>|!--[^<>]{{0,64}}-->)"
_INLINE_MARK = rf"(?:[*`]{{1,3}}|~~|{_TAG})"
_FIRST = r"[*`~<-]"
_AFTER_FIRST = (
    r"(?:(?<=[*`])[*`]{0,2}|(?<=~)~"
    rf"|(?<=<)(?:/?(?:{_INLINE})(?:\s[^<>]{{0,64}})?/?>|!--[^<>]{{0,64}}-->))"
)
# A pattern that begins with a character class is searched much faster.
_WITHIN = re.compile(
    rf"{_FIRST}(?:(?<=[\w@.+-]{_FIRST}){_AFTER_FIRST}{_INLINE_MARK}{{0,3}}+(?=[\w@]|[.+-]\w)"
    r"|(?<=\w-)[ \t]{0,4}\r?\n[ \t]{0,16}(?=\w))",
    re.IGNORECASE,
)
_CUT_TAG = r"(?:/?[a-z]{0,6}(?:\s[^<>]{0,64})?/?|!-{0,2}|!--[^<>]{0,66})"
_OPEN = re.compile(
    rf"{_FIRST}(?:(?<=[\w@.+-]{_FIRST})(?:(?<=<){_CUT_TAG}"
    rf"|{_AFTER_FIRST}{_INLINE_MARK}{{0,3}}(?:<{_CUT_TAG}|~)?[.+-]?|(?<=~))"
    r"|(?<=\w-)[ \t]{0,4}\r?(?:\n[ \t]{0,16})?)\Z",
    re.IGNORECASE,
)
_MAX_MARK_CHARS = 400  # maximum characters of several tags and their neighbors

_LETTER = r"[A-Za-z\x{80}-\x{10FFFF}]"
_W = r"[0-9A-Za-z_\x{80}-\x{10FFFF}]"
LETTER_GAP = r"[\s._*·•|/\\,~-]"
_SEPARATED = re.compile(rf"(?<![^\W\d_])[^\W\d_](?:{LETTER_GAP}[^\W\d_]){{2,}}(?![^\W\d_])")

ESCAPED, ENCODED, MARKED, SEPARATED = range(4)
"""Indexes of the disguises that ``DISGUISES`` finds."""
DISGUISES = PatternSet(
    [
        rf"[&%\\{CONTROLS}]",  # an escape, or an invisible character
        rf"{base64_text.BASE64_CHARACTER}{{{base64_text.MIN_RUN_CHARS}}}|(?i:base64,)",
        rf"[0-9A-Za-z_@.+\x{{80}}-\x{{10FFFF}}-]"
        rf"(?:[*`]|~~|<(?:/?(?i:{_INLINE})(?:[\s\x{{80}}-\x{{10FFFF}}][^<>]*)?/?|!--[^<>]*)>)+"
        rf"(?:[0-9A-Za-z_@\x{{80}}-\x{{10FFFF}}]|[.+-]{_W})|{_W}-[ \t]*\r?\n[ \t]*{_W}",
        rf"(?:\A|[^A-Za-z])(?:{_LETTER}(?:[^A-Za-z\x{{80}}-\x{{10FFFF}}]|[·•])){{2}}{_LETTER}"
        r"(?:[^A-Za-z]|\z)",
    ]
)
"""Prefilter of all disguises except characters beyond ASCII. It may match texts without any."""


def has_no_disguise(ascii_text: bytes) -> bool:
    """Return True if an ASCII text, and each of its lines, has no other reading.

    May be False for several lines although it is True for each line.
    """
    return not DISGUISES.may_match_or_begin(ascii_text)


def find_letter_gaps(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the edits that remove separators between single letters, as in ``s e c r e t``."""
    for match in _SEPARATED.finditer(text):
        yield from ((gap, gap + 1, "") for gap in range(match.start() + 1, match.end(), 2))


def find_markup_in_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the edits that remove marks within words, such as ``**`` in ``pass**word``."""
    return ((match.start(), match.end(), "") for match in _WITHIN.finditer(text))


def find_trailing_markup(text: str) -> int:
    """Return the start of trailing marks that may be within a word, or the length of the text."""
    if text[-1:].isalnum() and "<" not in text[-_MAX_MARK_CHARS:]:
        return len(text)
    match = _OPEN.search(text, max(0, len(text) - _MAX_MARK_CHARS))
    return len(text) if match is None else match.start()
