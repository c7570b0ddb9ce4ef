"""Finds card numbers and IBANs by their format and check digits."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import islice

from stdnum import iban as ibans

from proxy.guards.matching.numbers import DATA, GROUP, NAMES, DigitRun, within
from proxy.types.guard import Finding

_DATA = tomllib.loads((DATA / "payments.toml").read_text("utf-8"))
BRANDS = [
    (re.compile(brand["prefix"]), frozenset(brand["lengths"]), brand["score"])
    for brand in _DATA["brands"]
]
# In a row of numbers, a card needs its grouping or is one group.
CARD_SHAPE = re.compile(
    r"(?<![0-9])(?:[0-9]{4}([ .-])[0-9]{4}\1[0-9]{4}\1[0-9]{4}|[0-9]{4}([ .-])[0-9]{6}\2[0-9]{5}"
    r"|[0-9]{13,19})(?![0-9])"
)

GROUPS = {(4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4)}
BETWEEN = re.compile(r"[^0-9]+")
MOST_GROUPS = 5
FOURS_BEFORE = re.compile(r"(?<![0-9])(?:[0-9]{4}[ .-]){2,4}\Z")
FOURS_AFTER = re.compile(r"(?:[ .-][0-9]{4}(?![0-9])){2,4}")
NEXT = 64  # characters on each side that are searched for neighbors in a list
# Neighbors in the same list: numbers of similar length, or any three. A table of cards has other
# numbers beside a card, such as customer numbers.
ALIKE_BEFORE = re.compile(r"(?:(?<![0-9])[0-9]{11,20}[,;|\t ]{1,3}){1,2}\Z")
ALIKE_AFTER = re.compile(r"(?:[,;|\t ]{1,3}[0-9]{11,20}(?![0-9/])){1,2}")
LEAST_ALIKE = 2
# Groups of digits among numbers of similar length, separated by spaces: one on each side, two
# before, or three behind, where the expiry date and the code of a card may follow.
GROUPS_BEFORE = re.compile(r"(?:(?<!\S)[0-9]{3,5} ){1,4}\Z")
GROUPS_AFTER = re.compile(r"(?: [0-9]{3,5}(?!\S)){1,4}")
MOST_BEFORE, MOST_AFTER = 1, 2
LISTED_BEFORE = re.compile(r"(?:(?<![0-9])[0-9]+, ){3}\Z")
LISTED_AFTER = re.compile(r"(?:, [0-9]+(?![0-9/])){3}")
SURE = 0.5  # above it, the brand proves a card
DOUBLED = str.maketrans("0123456789", "0246813579")  # digit sum of the double
INSIDE = re.compile(r"(?<![^\W_])[0-9]+\.\Z|[^\W_]_-?\Z")  # a fraction or an identifier

ACCOUNT = r"[A-Za-z]{2}[0-9]{2}"
ACCOUNT_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _DATA["iban_lengths"].split()}
LONGEST_ACCOUNT = 34
_ACCOUNT_LANDS = "|".join(sorted(ACCOUNT_LENGTHS))
ACCOUNT_SHAPE = rf"(?i)(?:{_ACCOUNT_LANDS})[0-9]{{2}}(?:[ -]?[A-Z0-9]){{1,{LONGEST_ACCOUNT - 1}}}"
SPACED = re.compile(r"[A-Z0-9](?:[ -]?[A-Z0-9]){3,33}", re.IGNORECASE)


def cards(part: DigitRun) -> Iterator[Finding]:
    """Yield card numbers with a known brand, a length of that brand and a valid Luhn checksum."""
    for number, score in within(part, 12, 19, _card, CARD_SHAPE):
        yield Finding(start=number.start, end=number.end, kind="card", score=score)


def _card(part: DigitRun) -> float:
    sure = _brand(part.digits)
    if not sure or not part.alone:
        return 0.0
    groups = tuple([len(group) for group in GROUP.findall(part.raw)])
    if part.is_named(NAMES["card"]):
        return 1.0 if len(groups) <= MOST_GROUPS else 0.0
    before, after = part.text[max(0, part.start - NEXT) : part.start], part.text[part.end :][:NEXT]
    if INSIDE.search(before) or (len(groups) > 1 and not _is_grouped(part, groups, before, after)):
        return 0.0
    if len(groups) == 1 and _is_listed(part.digits, before, after):
        return 0.0
    return sure if sure > SURE or (part.grouped and len(part.digits) >= 15) else 0.3


def _brand(digits: str) -> float:
    """Return the score of the brand, or 0 for an unknown brand or an invalid Luhn checksum."""
    score = max(
        (sure for begin, lengths, sure in BRANDS if len(digits) in lengths and begin.match(digits)),
        default=0.0,
    )
    return score if score and luhn(digits) else 0.0


def _is_grouped(part: DigitRun, groups: tuple[int, ...], before: str, after: str) -> bool:
    """Return True if digits are grouped as on a card, and are not part of a row of such groups."""
    one_sign = len({*BETWEEN.findall(part.raw.lstrip("+("))}) == 1
    row = [*filter(None, (FOURS_BEFORE.search(before), FOURS_AFTER.match(after)))]
    in_row = any(_is_other("".join(GROUP.findall(each[0]))) for each in row)
    return groups in GROUPS and one_sign and not in_row and not _is_among(before, after)


def _is_among(before: str, after: str) -> bool:
    """Return True if groups of digits belong to a row of numbers."""
    ahead, behind = _beside(GROUPS_BEFORE.search(before)), _beside(GROUPS_AFTER.match(after))
    return bool(ahead and behind) or ahead > MOST_BEFORE or behind > MOST_AFTER


def _beside(found: re.Match[str] | None) -> int:
    """Return the number of adjacent groups, or 0 if they form a card number."""
    groups = [] if found is None else GROUP.findall(found[0])
    return len(groups) if _is_other("".join(groups)) else 0


def _is_listed(digits: str, before: str, after: str) -> bool:
    """Return True if digits belong to a list of numbers on their line."""
    for listed in (LISTED_BEFORE.search(before), LISTED_AFTER.match(after)):
        if listed is not None and any(map(_is_other, GROUP.findall(listed[0]))):
            return True
    found = ALIKE_BEFORE.search(before), ALIKE_AFTER.match(after)
    beside = [number for each in found if each is not None for number in GROUP.findall(each[0])]
    alike = [number for number in beside if abs(len(number) - len(digits)) <= 1]
    return sum(map(_is_other, alike)) >= LEAST_ALIKE


def _is_other(digits: str) -> bool:
    """Return True if a neighbor is not certainly a card, which makes both a list of numbers."""
    return _brand(digits) <= SURE


def luhn(digits: str) -> bool:
    """Return True if digits have a valid Luhn checksum."""
    return sum(map(int, digits[-1::-2] + digits[-2::-2].translate(DOUBLED))) % 10 == 0


def account(text: str, start: int, end: int) -> Iterator[Finding]:
    """Yield the IBAN whose country code and check digits extend from ``start`` to ``end``."""
    length = ACCOUNT_LENGTHS.get(text[start : start + 2].upper())
    if length is None or DigitRun(text, start, end).before[-1:].isalnum():
        return
    match = SPACED.match(text, start)
    if match is None:
        return
    ends = (at for at in range(start, match.end()) if text[at].isalnum())
    stop = next(islice(ends, length - 1, None), len(text)) + 1
    if stop > len(text) or (stop < len(text) and text[stop].isalnum()):
        return
    if ibans.is_valid(text[start:stop], check_country=False):
        yield Finding(start, stop, "iban")
