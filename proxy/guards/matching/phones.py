"""Finds phone numbers of given regions, international ones, and ones after "phone"."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import phonenumbers

from proxy.guards.matching.numbers import (
    CONTEXT_WORDS,
    DIGIT_GROUP,
    TIMESTAMP,
    DigitRun,
    find_numbers,
)
from proxy.types.guard import Finding

# In a row of numbers, a phone needs its grouping.
PHONE_FORMAT = re.compile(
    r"(?<![0-9])(?:(?:\+?1[ .-])?\(?[2-9][0-9]{2}\)?[ .-][0-9]{3}[ .-][0-9]{4}"
    r"|\+[1-9](?:[ .()/-]{0,2}[0-9]){6,14}"
    r"|0[1-9][0-9]{1,3}[ /-][0-9]{5,8}|0[1-9](?:[ .-][0-9]{2}){4})(?![0-9])"
)
MAX_LOCAL_DIGITS = 8  # a national number with at most this many digits needs a word nearby
BINARY_DIGITS = re.compile(r"[01]+")
FRACTION_OR_SERIES = re.compile(
    r"[0-9]\.[0-9]{5}|[0-9]\.[0-9]\.|[0-9]\.[0-9]+[ ,]+-?[0-9]+\.[0-9]| -[0-9]"
)
ROW_BEFORE = re.compile(r"(?<![0-9])(?:(?:0|[1-9][0-9]*) ){4}\Z")
ROW_AFTER = re.compile(r"(?: (?:0(?![0-9])|[1-9][0-9]*)){4}")
# Spaces also separate the columns of a table. Such groups need a trunk prefix.
PREFIX_OR_MARK = re.compile(r"0[0-9]+ |.*[().+/-]")
# A slash follows the area code only, and a dot separates either all groups or none.
MIXED_SEPARATORS = re.compile(r".*(?:[0-9][ .-]+[0-9]+.*/|[0-9]\.[0-9].*[ /-]|[ /-].*\.)|0 ")
ROW_CHARS = 64  # characters that are searched for a row of numbers
PHONE_EXTENSION = re.compile(
    r" ?(?:x|ext\.?|extension|#) ?[0-9]{1,6}(?![0-9A-Za-z])", re.IGNORECASE
)


class Phones:
    """Detector of international phone numbers and national ones of ``regions``, such as ``US``.

    Raises ``ValueError`` for an unknown region.
    """

    def __init__(self, regions: Sequence[str]) -> None:
        unknown = [region for region in regions if region not in phonenumbers.SUPPORTED_REGIONS]
        if unknown:
            raise ValueError(
                f"{unknown[0]!r} is not a supported region. "
                "Use a two-letter country code in capitals, such as DE."
            )
        self._regions = tuple(_Region(region) for region in regions)

    def iter_loading_steps(self) -> Iterator[None]:
        """Load the metadata of all countries, one per step."""
        for region in phonenumbers.SUPPORTED_REGIONS:
            phonenumbers.PhoneMetadata.metadata_for_region(region)
            yield

    def find(self, part: DigitRun) -> Iterator[Finding]:
        if BINARY_DIGITS.fullmatch(part.digits):
            return
        # A number that begins inside of a code or a path belongs to it.
        if TIMESTAMP.fullmatch(part.raw) or (part.ends_longer_token and "+" not in part.raw):
            return
        for number, score in find_numbers(part, 7, 15, self._score, PHONE_FORMAT):
            yield Finding(number.start, _find_end_with_extension(number), kind="phone", score=score)

    def _score(self, part: DigitRun) -> float:
        is_international = part.raw.startswith(("+", "(+"))
        has_exit_code = part.raw.startswith(("00", "(00")) and not part.ends_longer_token
        if is_international or (has_exit_code and len(part.digits) > 9):
            return _score_international(part, part.digits if is_international else part.digits[2:])
        if (
            part.ends_longer_token
            or DigitRun(part.text, part.start, _find_end_with_extension(part)).begins_longer_token
        ):
            return 0.0
        has_phone_word = part.has_keyword_nearby(CONTEXT_WORDS["phone"])
        if not has_phone_word and (
            len(part.digits) <= MAX_LOCAL_DIGITS
            or part.has_keyword_nearby(CONTEXT_WORDS["not_phone"])
            or not _has_phone_grouping(part)
            or ROW_BEFORE.search(part.text[max(0, part.start - ROW_CHARS) : part.start])
            or ROW_AFTER.match(part.text[part.end : part.end + ROW_CHARS])
        ):
            return 0.0
        if any(region.is_valid_number(part.digits) for region in self._regions):
            if has_phone_word or PREFIX_OR_MARK.match(part.raw):
                return 0.9
            return 0.6 if part.digits.startswith("0") else 0.3
        # At least two digits per group: not 1-1-1-1-1-1-1.
        is_plausible = len(part.digits) >= 2 * len(DIGIT_GROUP.findall(part.raw)) - 2
        return 0.6 if has_phone_word and is_plausible else 0.0


class _Region:
    def __init__(self, code: str) -> None:
        metadata = phonenumbers.PhoneMetadata.metadata_for_region(code)
        general = metadata.general_desc if metadata else None
        self._code = code
        self._national = re.compile((general and general.national_number_pattern) or "")
        self._prefix = (metadata.national_prefix if metadata else None) or ""

    def is_valid_number(self, digits: str) -> bool:
        """Return True if digits are a valid number as dialed within the region.

        A trunk prefix of 0 is required: without it, too many numbers would be valid.
        """
        if self._prefix == "0" and not digits.startswith("0"):
            return False
        significant = digits.removeprefix(self._prefix)
        # The library takes 50 us; this check rejects nearly all numbers.
        if not self._national.fullmatch(significant) and not self._national.fullmatch(digits):
            return False
        return _is_valid_number(digits, self._code)


def _is_valid_number(number: str, region: str | None) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
    except phonenumbers.NumberParseException:
        return False


def _score_international(part: DigitRun, digits: str) -> float:
    if not part.is_whole_word:
        return 0.0
    if _is_valid_number(f"+{digits}", None):
        return 1.0
    is_plausible = part.raw.startswith("+") and len(digits) > 7 and _has_phone_grouping(part)
    return 0.6 if is_plausible else 0.0


def _has_phone_grouping(part: DigitRun) -> bool:
    """Return True if digits are grouped as in a phone number.

    Other groupings are an SSN, a fraction or a series.
    """
    raw, groups = part.raw, [*map(len, DIGIT_GROUP.findall(part.raw))]
    if groups == [3, 2, 4] or FRACTION_OR_SERIES.search(raw) or MIXED_SEPARATORS.match(raw):
        return False
    # The area code comes first and is shorter than the rest of the number.
    return 1 not in groups[1:] and (len(groups) != 2 or groups[0] <= groups[1])


def _find_end_with_extension(part: DigitRun) -> int:
    extension = PHONE_EXTENSION.match(part.text, part.end)
    return extension.end() if extension else part.end
