"""Runs of digits and their context, for phone, card and national numbers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence, Set

from proxy.guards.matching.pattern_syntax import UNSPACED_SCRIPTS
from proxy.guards.matching.phrase_rules import DATA_FOLDER
from proxy.runtime.frozen import frozen

# Seven digits or more with up to three separators between them.
DIGIT_RUN = r"[+(]{0,2}[0-9](?:[ .()/-]{0,3}[0-9]){6,}"
# Longer runs are tables or hashes. Only numbers with a distinctive shape are found in them, so that
# the start of the run does not matter.
MAX_RUN_DIGITS = 40
LONG_RUN_CHARS = 4 * MAX_RUN_DIGITS  # characters; a longer run certainly has more digits
MIN_NUMBER_DIGITS = 7
ESCAPED_SPACES = frozenset({r"\n", r"\r", r"\t"})
CHARS_BEFORE, CHARS_AFTER = 48, 24  # characters around a number that are searched for words

DIGIT_GROUP = re.compile("[0-9]+")
WORD = re.compile(r"[^\W\d_]+")
_MONTH_DAY = r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
_HOUR_MINUTE = r"(?:[01][0-9]|2[0-3])[0-5][0-9]"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
# Dates, compact timestamps, seconds since 1970 with a fraction, and IPv4 addresses with or without
# a port. They separate numbers.
DATE = re.compile(
    r"(?<![0-9])(?:"
    r"(?:19|20)[0-9]{2}([-./])(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0?[1-9]|[12][0-9]|3[01])([-./])(?:0?[1-9]|[12][0-9]|3[01])\2(?:19|20)[0-9]{2}"
    rf"|(?:(?:19|20)?[0-9]{{2}})?{_MONTH_DAY}[ -]{_HOUR_MINUTE}[0-5][0-9]"
    r"|1[0-9]{9}\.[0-9]{3,9}"
    rf"|(?<![0-9]\.){_OCTET}(?:\.{_OCTET}){{3}}(?:\.[0-9]{{1,5}})?(?!\.[0-9])"
    r")(?![0-9])"
)
TIMESTAMP = re.compile(rf"(?:19|20)[0-9]{{2}}{_MONTH_DAY}(?:[ -]?{_HOUR_MINUTE}(?:[0-5][0-9])?)?")


def split_word_set(keywords: str) -> frozenset[str]:
    return frozenset(keywords.split())


_WORDS = tomllib.loads((DATA_FOLDER / "number_words.toml").read_text("utf-8"))
CONTEXT_WORDS = {name: split_word_set(keywords) for name, keywords in _WORDS.items()}
"""Words near a number, by the kind of number that they indicate."""


@frozen
class DigitRun:
    """Run of digits in a text, which starts with a digit, + or (."""

    text: str
    start: int
    end: int

    @property
    def raw(self) -> str:
        return self.text[self.start : self.end]

    @property
    def digits(self) -> str:
        return "".join(DIGIT_GROUP.findall(self.raw))

    def has_keyword_nearby(self, keywords: Set[str]) -> bool:
        return has_keyword_nearby(self.text, self.start, self.end, keywords)

    @property
    def two_chars_before(self) -> str:
        """The two characters before the run; empty for an escaped line feed or tab, as in JSON."""
        pair = self.text[max(0, self.start - 2) : self.start]
        return "" if pair in ESCAPED_SPACES else pair

    @property
    def ends_longer_token(self) -> bool:
        """True if the characters before the run make it the end of a code, a path or an amount."""
        return bool(TOKEN_BEFORE.search(self.two_chars_before))

    @property
    def begins_longer_token(self) -> bool:
        """True if the characters after the run make it the start of a code, a time or an amount."""
        return bool(TOKEN_AFTER.match(self.text[self.end : self.end + 4]))

    @property
    def is_whole_word(self) -> bool:
        """True if no letter or digit is adjacent to the run."""
        around = self.two_chars_before[-1:] + self.text[self.end :][:1]
        return ADJACENT_CHARACTER.search(around) is None


# Separators between two numbers.
NUMBER_BORDER = re.compile(r" {2}|\. | \.|\(?\+")
# Adjacent characters of the same word, and parts of a code, a path, a time or an amount.
ADJACENT_CHARACTER = re.compile(rf"[^\W_{UNSPACED_SCRIPTS}]")
TOKEN_BEFORE = re.compile(rf"[$€£¥#&]\Z|[^\W{UNSPACED_SCRIPTS}][-./]?\Z|[0-9]:\Z")
TOKEN_AFTER = re.compile(
    rf"[%@]| ?[€£$¥]|[./:,]?[^\W{UNSPACED_SCRIPTS}]"
    r"|-(?:[0-9]|[A-Za-z]{1,2}(?![A-Za-z]))"  # a longer word names an owner: 212-555-0187-office
)


def has_keyword_nearby(text: str, start: int, end: int, keywords: Set[str]) -> bool:
    """Return True if one of the words is near a span of a text.

    Alphabets with case need whole words. Other scripts, which may have no spaces, match anywhere.
    """
    nearby = text[max(0, start - CHARS_BEFORE) : start] + " " + text[end : end + CHARS_AFTER]
    context = nearby.casefold()
    if not keywords.isdisjoint(WORD.findall(context)):
        return True
    return not context.isascii() and any(
        word in context for word in keywords if word.upper() == word.lower()
    )


def split_digit_run(text: str, start: int, end: int) -> Iterator[DigitRun]:
    """Yield the parts of a run, split at dates and at the start of another number."""
    if end - start > LONG_RUN_CHARS:
        yield DigitRun(text, start, end)
        return
    for part in _split_at_matches(DATE, text, start, end, drops_matches=True):
        for span in _split_at_matches(NUMBER_BORDER, text, *part, drops_matches=False):
            yield from _split_at_number_starts(text, *span)


def _split_at_matches(
    pattern: re.Pattern[str], text: str, start: int, end: int, *, drops_matches: bool
) -> Iterator[tuple[int, int]]:
    """Yield the spans between matches. A match begins a span, unless ``drops_matches``."""
    for match in pattern.finditer(text, start, end):
        yield start, match.start()
        start = match.end() if drops_matches else match.start()
    yield start, end


def _split_at_number_starts(text: str, start: int, end: int) -> Iterator[DigitRun]:
    """Split before a 0 or a bracket if both parts have enough digits."""
    groups = list(DIGIT_GROUP.finditer(text, start, end))
    digits_left = sum(len(group[0]) for group in groups)
    first_group = digits = 0
    for index, group in enumerate(groups):
        begins = group[0].startswith("0") or text[group.start() - 1 : group.start()] == "("
        if begins and digits >= MIN_NUMBER_DIGITS <= digits_left:
            yield _join_groups(text, groups[first_group:index], start)
            first_group, digits = index, 0
        digits += len(group[0])
        digits_left -= len(group[0])
    if groups:
        yield _join_groups(text, groups[first_group:], start)


def _join_groups(text: str, groups: Sequence[re.Match[str]], min_start: int) -> DigitRun:
    start = groups[0].start()
    while start > min_start and text[start - 1] in "+(":
        start -= 1
    return DigitRun(text, start, groups[-1].end())


def find_numbers(
    part: DigitRun,
    min_digits: int,
    max_digits: int,
    score: Callable[[DigitRun], float],
    long_run_pattern: re.Pattern[str],
) -> Iterator[tuple[DigitRun, float]]:
    """Yield numbers of ``min_digits`` to ``max_digits`` digits with a ``score`` above 0.

    The whole run is tried first, then without its last groups, then without its first groups, then
    the rest after a number. A run that is too long is searched for ``long_run_pattern`` only.
    """
    long = part.end - part.start > LONG_RUN_CHARS
    groups = [] if long else list(DIGIT_GROUP.finditer(part.text, part.start, part.end))
    if long or sum(len(group[0]) for group in groups) > MAX_RUN_DIGITS:
        for match in long_run_pattern.finditer(part.text, part.start, part.end):
            shaped = DigitRun(part.text, match.start(), match.end())
            if confidence := score(shaped):
                yield shaped, confidence
        return
    min_start = part.start
    while groups:
        result = _find_first_number(part.text, groups, (min_digits, max_digits), min_start, score)
        if result is None:
            return
        number, confidence = result
        yield number, confidence
        groups = [group for group in groups if group.start() >= number.end]
        min_start = number.end


def _find_first_number(
    text: str,
    groups: Sequence[re.Match[str]],
    digit_bounds: tuple[int, int],
    min_start: int,
    score: Callable[[DigitRun], float],
) -> tuple[DigitRun, float] | None:
    count = len(groups)
    ends = [(0, end) for end in range(count, 0, -1)]
    for begin, end in ends + [(begin, count) for begin in range(1, count)]:
        digits = sum(len(group[0]) for group in groups[begin:end])
        if digit_bounds[0] <= digits <= digit_bounds[1]:
            window = _join_groups(text, groups[begin:end], min_start)
            if confidence := score(window):
                return window, confidence
    return None


MessageBoundaries = Sequence[tuple[int, int]]
"""Spans, within a finding, between the end of one message and the start of the next."""
BOUNDARY_CHARS = 40  # characters of a message that show whether a number is complete
DIALED_PREFIX = re.compile(r"\(?(?:\+|00[1-9][0-9]{1,2}[ )/-]|00[1-9][0-9]{4})")
# Text before an @ that is no local part by itself: a number, or a word before a mention.
COMPLETE_TEXT_BEFORE_AT = re.compile(r"[0-9 .,%()/+-]*|[^\W\d_]*")
PACKAGE_VERSION = re.compile(r"@v?[0-9]+(?:\.[0-9]+)*\.$")  # such as pkg@1.2.
# Complete numbers: a fraction, an amount, a network address, a time.
COMPLETE_NUMBER_BEFORE = re.compile(r"(?:^|[^0-9+.])-?[0-9]+(?:[.,:][0-9]+)+$")
COMPLETE_NUMBER_AFTER = re.compile(r"-?[0-9]+(?:[.,:][0-9]+)+(?![0-9])")


def is_one_value_across_messages(
    kind: str, text: str, start: int, end: int, boundaries: MessageBoundaries
) -> bool:
    """Return True if a finding across the ends of messages is one value that was split.

    Messages often start and end with numbers, such as tool results. A finding at a boundary is one
    value only if one of the messages is incomplete without the other.
    """
    return all(_is_one_value_at_boundary(kind, text, (start, end), each) for each in boundaries)


def _is_one_value_at_boundary(
    kind: str, text: str, span: tuple[int, int], boundary: tuple[int, int]
) -> bool:
    (start, end), (boundary_start, boundary_end) = span, boundary
    number_start = text[start:boundary_start]
    if kind == "email":
        is_complete = COMPLETE_TEXT_BEFORE_AT.fullmatch(number_start)
        return not (is_complete or PACKAGE_VERSION.search(number_start))
    text_before = text[max(0, boundary_start - BOUNDARY_CHARS) : boundary_start].rstrip()
    text_after = text[boundary_end : boundary_end + BOUNDARY_CHARS].lstrip()
    dates_before = (match.end() for match in DATE.finditer(text_before))
    if (
        COMPLETE_NUMBER_BEFORE.search(text_before)
        or COMPLETE_NUMBER_AFTER.match(text_after)
        or DATE.match(text_after)
        or len(text_before) in dates_before
    ):
        return False
    is_dialed = kind != "phone" or DIALED_PREFIX.match(number_start) is not None
    return is_dialed or has_keyword_nearby(text, start, end, CONTEXT_WORDS["phone"])
