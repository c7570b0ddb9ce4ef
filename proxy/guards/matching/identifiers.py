"""Finds card numbers, IBANs and national ID numbers by their format and check digits."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from stdnum import iban as ibans

from proxy.guards.matching import numbers
from proxy.guards.matching.phrase_rules import DATA_FOLDER
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding

_DATA = tomllib.loads((DATA_FOLDER / "payments.toml").read_text("utf-8"))
CARD_BRANDS = [
    (re.compile(brand["prefix"]), frozenset(brand["lengths"]), brand["score"])
    for brand in _DATA["brands"]
]
# In a row of numbers, a card needs its grouping or is one group.
CARD_SHAPE = re.compile(
    r"(?<![0-9])(?:[0-9]{4}([ .-])[0-9]{4}\1[0-9]{4}\1[0-9]{4}|[0-9]{4}([ .-])[0-9]{6}\2[0-9]{5}"
    r"|[0-9]{13,19})(?![0-9])"
)

CARD_GROUPINGS = {(4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4)}
NON_DIGITS = re.compile(r"[^0-9]+")
MAX_CARD_GROUPS = 5
FOURS_BEFORE = re.compile(r"(?<![0-9])(?:[0-9]{4}[ .-]){2,4}\Z")
FOURS_AFTER = re.compile(r"(?:[ .-][0-9]{4}(?![0-9])){2,4}")
NEARBY_CHARS = 64  # characters on each side that are searched for neighbors in a list
# Neighbors in the same list: numbers of similar length, or any three. A table of cards has other
# numbers beside a card, such as customer numbers.
SIMILAR_BEFORE = re.compile(r"(?:(?<![0-9])[0-9]{11,20}[,;|\t ]{1,3}){1,2}\Z")
SIMILAR_AFTER = re.compile(r"(?:[,;|\t ]{1,3}[0-9]{11,20}(?![0-9/])){1,2}")
MIN_SIMILAR = 2
# Groups of digits among numbers of similar length, separated by spaces: one on each side, two
# before, or three behind, where the expiry date and the code of a card may follow.
GROUPS_BEFORE = re.compile(r"(?:(?<!\S)[0-9]{3,5} ){1,4}\Z")
GROUPS_AFTER = re.compile(r"(?: [0-9]{3,5}(?!\S)){1,4}")
MAX_GROUPS_BEFORE, MAX_GROUPS_AFTER = 1, 2
LISTED_BEFORE = re.compile(r"(?:(?<![0-9])[0-9]+, ){3}\Z")
LISTED_AFTER = re.compile(r"(?:, [0-9]+(?![0-9/])){3}")
CERTAIN_SCORE = 0.5  # above it, the brand proves a card
DIGIT_SUM_OF_DOUBLE = str.maketrans("0123456789", "0246813579")  # digit sum of twice the digit
# The match continues a fraction or an identifier.
WITHIN_TOKEN = re.compile(r"(?<![^\W_])[0-9]+\.\Z|[^\W_]_-?\Z")

IBAN_START = r"[A-Za-z]{2}[0-9]{2}"
IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _DATA["iban_lengths"].split()}
MAX_IBAN_LENGTH = 34
_IBAN_COUNTRIES = "|".join(sorted(IBAN_LENGTHS))
IBAN_PATTERN = rf"(?i)(?:{_IBAN_COUNTRIES})[0-9]{{2}}(?:[ -]?[A-Z0-9]){{1,{MAX_IBAN_LENGTH - 1}}}"
IBAN_CHARACTERS = re.compile(r"[A-Z0-9](?:[ -]?[A-Z0-9]){3,33}", re.IGNORECASE)


def find_cards(part: numbers.DigitRun) -> Iterator[Finding]:
    """Yield card numbers with a known brand, a length of that brand and a valid Luhn checksum."""
    for number, score in numbers.find_numbers(part, 12, 19, _score_card, CARD_SHAPE):
        yield Finding(number.start, number.end, kind="card", score=score)


def _score_card(part: numbers.DigitRun) -> float:
    brand_score = _score_valid_card_brand(part.digits)
    if not brand_score or not part.is_whole_word:
        return 0.0
    groups = tuple([len(group) for group in numbers.DIGIT_GROUP.findall(part.raw)])
    if part.has_keyword_nearby(numbers.CONTEXT_WORDS["card"]):
        return 1.0 if len(groups) <= MAX_CARD_GROUPS else 0.0
    preceding = part.text[max(0, part.start - NEARBY_CHARS) : part.start]
    following = part.text[part.end :][:NEARBY_CHARS]
    if len(groups) == 1:
        is_card = not _is_in_number_list(part.digits, preceding, following)
    else:
        is_card = _has_card_grouping(part, groups, preceding, following)
    if not is_card or WITHIN_TOKEN.search(preceding):
        return 0.0
    is_certain = brand_score > CERTAIN_SCORE or (len(groups) > 1 and len(part.digits) >= 15)
    return brand_score if is_certain else 0.3


def _score_valid_card_brand(digits: str) -> float:
    """Return the score of the brand, or 0 for an unknown brand or an invalid Luhn checksum."""
    scores = [
        score
        for begin, lengths, score in CARD_BRANDS
        if len(digits) in lengths and begin.match(digits)
    ]
    return max(scores) if scores and is_luhn_valid(digits) else 0.0


def _has_card_grouping(
    part: numbers.DigitRun, groups: tuple[int, ...], preceding: str, following: str
) -> bool:
    """Return True if digits are grouped as on a card, and are not part of a row of such groups."""
    if groups not in CARD_GROUPINGS or _has_adjacent_groups(preceding, following):
        return False
    has_one_separator = len({*NON_DIGITS.findall(part.raw.lstrip("+("))}) == 1
    row = [*filter(None, (FOURS_BEFORE.search(preceding), FOURS_AFTER.match(following)))]
    in_row = any(
        _is_no_certain_card("".join(numbers.DIGIT_GROUP.findall(match[0]))) for match in row
    )
    return has_one_separator and not in_row


def _has_adjacent_groups(preceding: str, following: str) -> bool:
    before = _count_groups_unless_certain_card(GROUPS_BEFORE.search(preceding))
    after = _count_groups_unless_certain_card(GROUPS_AFTER.match(following))
    return bool(before and after) or before > MAX_GROUPS_BEFORE or after > MAX_GROUPS_AFTER


def _count_groups_unless_certain_card(match: re.Match[str] | None) -> int:
    """Return the number of digit groups, or 0 if they certainly form a card number."""
    groups = numbers.DIGIT_GROUP.findall(match[0]) if match else []
    return len(groups) if _is_no_certain_card("".join(groups)) else 0


def _is_in_number_list(digits: str, preceding: str, following: str) -> bool:
    """Return True if digits belong to a list of numbers on their line."""
    for listed in (LISTED_BEFORE.search(preceding), LISTED_AFTER.match(following)):
        if listed is not None and any(
            map(_is_no_certain_card, numbers.DIGIT_GROUP.findall(listed[0]))
        ):
            return True
    matches = SIMILAR_BEFORE.search(preceding), SIMILAR_AFTER.match(following)
    neighbors = [
        number for match in matches if match for number in numbers.DIGIT_GROUP.findall(match[0])
    ]
    similar = [number for number in neighbors if abs(len(number) - len(digits)) <= 1]
    return sum(map(_is_no_certain_card, similar)) >= MIN_SIMILAR


def _is_no_certain_card(digits: str) -> bool:
    """Return True unless digits are certainly a card number.

    Next to such a number, a candidate is more likely an item of a list than a card.
    """
    return _score_valid_card_brand(digits) <= CERTAIN_SCORE


def is_luhn_valid(digits: str) -> bool:
    return sum(map(int, digits[-1::-2] + digits[-2::-2].translate(DIGIT_SUM_OF_DOUBLE))) % 10 == 0


def find_iban(text: str, prefix_start: int, prefix_end: int) -> Iterator[Finding]:
    """Yield the IBAN that begins with a prefix of country code and check digits."""
    start = prefix_start
    length = IBAN_LENGTHS.get(text[start : start + 2].upper())
    if length is None or numbers.DigitRun(text, start, prefix_end).two_chars_before[-1:].isalnum():
        return
    match = IBAN_CHARACTERS.match(text, start)
    if match is None:
        return
    ends = (index for index in range(start, match.end()) if text[index].isalnum())
    stop = next(islice(ends, length - 1, None), len(text)) + 1
    if stop > len(text) or (stop < len(text) and text[stop].isalnum()):
        return
    if ibans.is_valid(text[start:stop], check_country=False):
        yield Finding(start, stop, "iban")


# One check digit accepts one in ten random numbers, so short numbers need groups or a name.
WEAK_SCORE, STRONG_SCORE, GROUPED_SCORE, NAMED_SCORE = 0.3, 0.7, 0.8, 1.0
UP_TO_10_DIGITS = "[0-9]{1,10}"


@frozen
class NationalIdFormat:
    """Format of one kind of number. ``data/national_ids.toml`` explains the fields."""

    pattern: str
    names: str
    module: str = ""
    unsure: str = UP_TO_10_DIGITS


NATIONAL_ID_FORMATS = {
    code: tuple(NationalIdFormat(**form) for form in forms)
    for code, forms in tomllib.loads((DATA_FOLDER / "national_ids.toml").read_text("utf-8")).items()
}
(SSN_FORMS,) = NATIONAL_ID_FORMATS.pop("ssn")
ID_COUNTRIES = tuple(NATIONAL_ID_FORMATS)
ESCAPED_LINE_END = r"\\[nrt]"  # escaped white space, whose letter is not part of a code
SEPARATED_GROUPS = re.compile(r"[0-9A-Za-z][ ./-][0-9A-Za-z]")
# Context that makes a match part of a longer number or a code.
CODE_BEFORE = re.compile(r"\w[-./]\Z|[0-9] \Z")
CODE_AFTER = re.compile(r"[-/]\w")
MORE_DIGITS = re.compile(" [0-9]")
# Names of numbers of any country in forms and keys.
ID_NAME = re.compile(
    r"(?<![a-z])(?:(?:national|personal|tax(?:payer)?|fiscal|citizen|identity|identification)[ _-]?"
    r"(?:id|identi[a-z]+|insurance|number|no|code)|id[ _-]?(?:number|no|card)|tin)(?![a-z])",
    re.IGNORECASE,
)


def load_validator(form: NationalIdFormat) -> Callable[[str], bool]:
    """Return the check of a format. Imports only the required module of python-stdnum."""
    checks = importlib.import_module(f"stdnum.{form.module}").is_valid if form.module else bool

    def is_valid(raw: str) -> bool:
        if raw not in (raw.upper(), raw.lower()):  # as in 2176792kB
            return False
        try:
            return bool(checks(raw.upper().replace(" ", "")))
        except LookupError:  # python-stdnum 2.2 fails for some places in China
            return False

    return is_valid


class NationalIdDetector:
    """Finds one kind of national ID among the matches of its ``regex``."""

    def __init__(self, kind: str, form: NationalIdFormat) -> None:
        self._kind, self._names = kind, numbers.split_word_set(form.names)
        self._is_valid, self._unsure = load_validator(form), re.compile(form.unsure)
        self.regex = rf"(?:\b|{ESCAPED_LINE_END})(?:{form.pattern})\b"

    def find(self, text: str, start: int, end: int) -> Iterator[Finding]:
        start += 2 if text[start : start + 2] in numbers.ESCAPED_SPACES else 0
        part, following = numbers.DigitRun(text, start, end), text[end : end + 2]
        if not part.is_whole_word or CODE_BEFORE.search(text[max(0, start - 2) : start]):
            return
        if CODE_AFTER.match(following) or (" " in part.raw and MORE_DIGITS.match(following)):
            return
        if self._is_valid(part.raw):
            yield Finding(start, end, kind=self._kind, score=self._score(part))

    def _score(self, part: numbers.DigitRun) -> float:
        preceding = part.text[max(0, part.start - numbers.CHARS_BEFORE) : part.start]
        if part.has_keyword_nearby(self._names) or ID_NAME.search(preceding):
            return NAMED_SCORE
        if SEPARATED_GROUPS.search(part.raw):
            return GROUPED_SCORE
        return WEAK_SCORE if self._unsure.fullmatch(part.raw) else STRONG_SCORE


def build_national_id_detectors(kind: str) -> Sequence[NationalIdDetector]:
    """Return the detectors of ``ssn`` or ``id_XX``, where XX is a country. Raises ``KeyError``."""
    forms = (SSN_FORMS,) if kind == "ssn" else NATIONAL_ID_FORMATS[kind.removeprefix("id_")]
    return [NationalIdDetector(kind, form) for form in forms]
