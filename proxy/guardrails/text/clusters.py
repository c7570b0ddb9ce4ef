"""Letters and the marks on them, composed as Unicode's NFKC does, in linear time.

At most ``MOST`` marks on a letter are composed with it, as in the stream-safe text of Unicode
Standard Annex 15: no writing has more of them, to sort them takes the square of their number, and a
text that comes in pieces is settled where a letter has as many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from unicodedata import combining, decomposition, is_normalized, normalize

from proxy.frozen import frozen
from proxy.guardrails.text.confusables import FOLDS, JOINING, MARKS

MOST = 30  # marks of one letter
_GAP = 16  # characters between two that change, from which on two ranges are searched

# Where characters that change are assigned; elsewhere are Han, Hangul, private use and nothing.
_ASSIGNED = (
    (0x80, 0x3400), (0xA000, 0xAC00), (0xD7B0, 0xD800), (0xF900, 0x1F300), (0x1FB00, 0x20000),
    (0x2F800, 0x2FA20),
)  # fmt: skip


def _joins(character: str) -> bool:
    """True if a character may compose with the one before it."""
    if character < "\u0300":
        return False
    first = normalize("NFKD", character)[0]
    return combining(first) > 0 or first in JOINING


def _changing() -> Iterator[str]:
    """Return the characters that NFKC changes or composes, in their order."""
    for begin, end in _ASSIGNED:
        for character in map(chr, range(begin, end)):
            if combining(character) or decomposition(character) or character in JOINING:
                yield character


def _ranges(characters: Iterable[str], gap: int = 1) -> str:
    """Return the inside of a character class; what is between two that are near may be in it."""
    ranges: list[list[str]] = []
    for each in sorted(characters):
        if ranges and ord(each) - ord(ranges[-1][1]) <= gap:
            ranges[-1][1] = each
        else:
            ranges.append([each, each])
    return "".join(f"{first}-{last}" for first, last in ranges)


@frozen
class Compositions:
    """What NFKC does to characters: the one that it makes of another, by its number; a run of
    such; a letter with marks, or one of which it makes several; and marks before a text's end."""

    singles: Mapping[int, str]
    single: re.Pattern[str]
    cluster: re.Pattern[str]
    marks_before: re.Pattern[str]


@cache
def compositions() -> Compositions:
    """Return what this Python knows of Unicode. It takes 15 ms, in a thread once
    calls are served where there are guards: without them nobody asks."""
    every = [*_changing()]
    alone = {each: normalize("NFKC", each) for each in every if not _joins(each)}
    singles = {ord(each): made for each, made in alone.items() if len(made) == 1 and made != each}
    several = [each for each, made in alone.items() if len(made) > 1]
    joined = _ranges(each for each in every if _joins(each))
    return Compositions(
        singles=singles,
        single=re.compile(f"[{_ranges(map(chr, singles), _GAP)}]+"),
        cluster=re.compile(f".?[{joined}]+|[{_ranges(several)}]", re.DOTALL),
        marks_before=re.compile(f"[{joined}]*"),
    )


_FOREIGN = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+", re.DOTALL)
_MARK = re.compile(f"[{MARKS}]")
_ALL_MARKS = re.compile(f"[{MARKS}]+")


def marked(text: str) -> bool:
    """True if marks are written apart in a text."""
    return _MARK.search(text) is not None


def singles(text: str) -> str:
    """Return a text with the one character that NFKC makes of another in the other's place.

    Those of which it makes several, and those that join others, stay.
    """
    known = compositions()
    return known.single.sub(lambda match: match.group().translate(known.singles), text)


def clusters(text: str, *, bare: bool) -> Iterator[tuple[int, int, str]]:
    """Return what else NFKC changes, as places and what it makes of them.

    ``bare`` takes marks that are written apart off Latin letters. Marks beyond ``MOST`` stay as
    they are; the bare reading is without them.
    """
    for run in _FOREIGN.finditer(text):
        piece = run.group()
        if not is_normalized("NFKC", piece) or (bare and marked(piece)):
            yield from _of_run(piece, run.start(), bare)


def _of_run(piece: str, at: int, bare: bool) -> Iterator[tuple[int, int, str]]:
    for match in compositions().cluster.finditer(piece):
        letter, beyond = match.group()[: 1 + MOST], match.group()[1 + MOST :]
        start = at + match.start()
        middle, end = start + len(letter), at + match.end()
        made = _bared(letter) if bare else normalize("NFKC", letter)
        if made != letter:
            yield start, middle, made
        if bare and beyond and (less := _MARK.sub("", beyond)) != beyond:
            yield middle, end, less


def open_cluster(text: str) -> int:
    """Return where the letter at the end begins that a mark which follows may still change."""
    if not text or text[-1] < "\u0300":
        return max(0, len(text) - 1)
    before = compositions().marks_before.match(text[: -MOST - 2 : -1])
    marks = before.end() if before else 0
    return len(text) if marks > MOST else max(0, len(text) - marks - 1)


def _bared(cluster: str) -> str:
    base = normalize("NFKC", cluster[0]).translate(FOLDS)
    marks = _ALL_MARKS.fullmatch(cluster, 1)
    return base if marks and base.isascii() else normalize("NFKC", cluster)
