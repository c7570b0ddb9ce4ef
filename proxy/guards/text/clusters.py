"""Composes letters with their marks as NFKC does, in linear time.

At most 30 marks are composed with a letter, as in the stream-safe format of Unicode Standard Annex
15: no writing has more, sorting them takes quadratic time, and a stream is settled after as many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from unicodedata import combining, decomposition, is_normalized, normalize

from proxy.guards.text.confusables import FOLDS, JOINING, MARKS
from proxy.runtime.frozen import frozen

MOST = 30  # marks on one letter
_GAP = 16  # distance of two characters that change from which on two ranges are searched

# Code points of characters that change. The others are Han, Hangul, private use and unassigned.
_ASSIGNED = (
    (0x80, 0x3400), (0xA000, 0xAC00), (0xD7B0, 0xD800), (0xF900, 0x1F300), (0x1FB00, 0x20000),
    (0x2F800, 0x2FA20),
)  # fmt: skip


def _joins(character: str) -> bool:
    """Return True if a character may compose with the one before it."""
    if character < "\u0300":
        return False
    first = normalize("NFKD", character)[0]
    return combining(first) > 0 or first in JOINING


def _changing() -> Iterator[str]:
    """Yield the characters that NFKC changes or composes, in order."""
    for begin, end in _ASSIGNED:
        for character in map(chr, range(begin, end)):
            if combining(character) or decomposition(character) or character in JOINING:
                yield character


def _ranges(characters: Iterable[str], gap: int = 1) -> str:
    """Return the inside of a character class, which may contain characters between two near
    ones."""
    ranges: list[list[str]] = []
    for character in sorted(characters):
        if ranges and ord(character) - ord(ranges[-1][1]) <= gap:
            ranges[-1][1] = character
        else:
            ranges.append([character, character])
    return "".join(f"{first}-{last}" for first, last in ranges)


@frozen
class Compositions:
    """Effects of NFKC: single characters by their code point, and patterns of a run of them, of a
    letter with marks or that becomes several, and of marks at the end of a reversed text."""

    singles: Mapping[int, str]
    single: re.Pattern[str]
    cluster: re.Pattern[str]
    marks_before: re.Pattern[str]


@cache
def compositions() -> Compositions:
    """Return the effects of NFKC in this version of Unicode. It takes 15 ms; with guards, a thread
    does so at a start."""
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
    """Return True if a text has combining marks."""
    return _MARK.search(text) is not None


def singles(text: str) -> str:
    """Replace the characters that NFKC replaces by one other.

    Those that become several, and those that join others, stay.
    """
    known = compositions()
    return known.single.sub(lambda match: match.group().translate(known.singles), text)


def clusters(text: str, *, bare: bool) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of all other changes of NFKC with their replacement.

    ``bare`` removes combining marks from Latin letters. Marks beyond ``MOST`` stay, except in the
    bare reading.
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
    """Return the start of the letter at the end, which a following mark may change."""
    if not text or text[-1] < "\u0300":
        return max(0, len(text) - 1)
    before = compositions().marks_before.match(text[: -MOST - 2 : -1])
    marks = before.end() if before else 0
    return len(text) if marks > MOST else max(0, len(text) - marks - 1)


def _bared(cluster: str) -> str:
    base = normalize("NFKC", cluster[0]).translate(FOLDS)
    marks = _ALL_MARKS.fullmatch(cluster, 1)
    return base if marks and base.isascii() else normalize("NFKC", cluster)
