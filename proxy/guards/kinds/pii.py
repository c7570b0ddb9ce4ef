"""The `pii` guard: finds personal identifiers by their format and check digits.

Names and postal addresses have no fixed format and are not found.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from pydantic import Field

from proxy.config.scalars import Section, Share, TextList
from proxy.dialects.findings import PII
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching import identifiers, numbers, phones
from proxy.guards.matching.identifiers import ID_COUNTRIES, build_national_id_detectors
from proxy.guards.matching.numbers import DigitRun, MessageBoundaries, is_one_value_across_messages
from proxy.guards.matching.partial_match import StreamPattern, StreamPatternMatcher
from proxy.guards.matching.pattern_syntax import UNSPACED_SCRIPTS
from proxy.guards.matching.patterns import trim_overlaps
from proxy.guards.matching.phones import Phones
from proxy.guards.matching.re2set import CharacterOffsets, Pattern, encode_utf8
from proxy.types.guard import Finding

ENTITIES = ("email", "phone", "card", "iban", "ssn", "ip", *(f"id_{code}" for code in ID_COUNTRIES))
DEFAULT_ENTITIES = ("email", "phone", "card", "iban", "ssn")
DEFAULT_REGIONS = ("US", "GB", "DE", "FR", "ES", "IT")

# Letters of scripts without spaces may belong to the sentence around an address: at most six count.
UNSPACED_LETTER = rf"[{UNSPACED_SCRIPTS}]"
SPACED_LETTER = rf"[^\PL{UNSPACED_SCRIPTS}]"
EMAIL_PATTERN = (
    rf"(?:(?:{SPACED_LETTER}|[\pN._%+'-])+|{UNSPACED_LETTER}{{1,6}})@(?:[\pL\pN-]+\.)+"
    rf"(?:{SPACED_LETTER}{{2,24}}|{UNSPACED_LETTER}{{1,6}})"
)
MAX_LOCAL_CHARS, MAX_DOMAIN_CHARS = 64, 253  # maximum characters before and after the @
REPOSITORY_ADDRESS = re.compile(r"(?:git|hg|svn)@[^:]+:\S")  # a remote of a version control system
# Escaped white space, whose letter is not part of the address.
ESCAPED_SPACE = re.compile(r"\\[nrt]")
IMAGE_NAME = re.compile(r"@[1-9]x\.(?:png|jpe?g|gif|webp|svg|avif|pdf)$", re.IGNORECASE)
IPV4_PATTERN = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
IPV6_PATTERN = r"[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]{0,38}(?::[0-9A-Fa-f]{1,4}|::|(?:\.[0-9]{1,3}){3})"

# Maximum context behind a number, in characters: a word, an extension, a row of numbers.
CONTEXT_CHARS = max(numbers.CHARS_AFTER, identifiers.NEARBY_CHARS, phones.ROW_CHARS)

# Longer than any e-mail address and any digit run that is searched completely.
LOOKBACK = 400

# Replaces digits of other scripts and signs of other widths, character by character.
ASCII_DIGITS = {
    **{zero + digit: str(digit) for zero in (
        0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6, 0xB66, 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50,
        0xED0, 0xF20, 0x1040, 0x17E0, 0x1810, 0xFF10,
    ) for digit in range(10)},
    **dict.fromkeys((0xA0, 0x2007, 0x2009, 0x200A, 0x202F, 0x3000), " "),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212, 0xFE63, 0xFF0D), "-"),
    0xFF0B: "+", 0xFF08: "(", 0xFF09: ")", 0xFF20: "@", 0xFF0E: ".",
}  # fmt: skip

EntityFinder = Callable[[str, int, int], Iterable[Finding]]
"""Yields the findings of an entity in a match from a start to an end."""


class Pii:
    """Detector of ``entities`` with a score of at least ``threshold``.

    The kind of a finding is the entity. Scores are at least 0.9 for numbers with valid check digits
    or in a registry, 0.6 for numbers that only words nearby identify, and 0.3 for numbers that may
    be valid by chance. Phone numbers of ``regions`` need no country code. Raises ``ValueError`` for
    an unknown entity or region.
    """

    lookback = LOOKBACK

    def __init__(
        self,
        entities: Sequence[str] = DEFAULT_ENTITIES,
        regions: Sequence[str] = DEFAULT_REGIONS,
        threshold: float = 0.5,
    ) -> None:
        self.threshold = threshold
        unknown = [entity for entity in entities if entity not in ENTITIES]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not one of {', '.join(ENTITIES)}")
        self._phones = Phones(regions) if "phone" in entities else None
        patterns = [*_build_entity_patterns(frozenset(entities), self._phones)]
        self._finders = [find for _, find in patterns]
        self.partial_matcher = StreamPatternMatcher(
            [pattern for pattern, _ in patterns], translation=ASCII_DIGITS
        )
        self.prefilter = self.partial_matcher.prefilter

    def prepare(self) -> None:
        self.partial_matcher.prepare()

    def iter_loading_steps(self) -> Iterator[None]:
        if self._phones is not None:
            yield from self._phones.iter_loading_steps()
        yield from self.partial_matcher.iter_loading_steps()

    def find(self, text: str) -> Sequence[Finding]:
        text = text if text.isascii() else text.translate(ASCII_DIGITS)
        data, findings = encode_utf8(text), []
        for index, matches in groupby(self.partial_matcher.find_all(data), itemgetter(0)):
            characters = CharacterOffsets(text, data)
            for _, spans in matches:
                findings += self._finders[index](text, *characters.to_character_span(*spans[0]))
        return trim_overlaps(f for f in findings if f.score >= self.threshold)

    def is_split_value(self, text: str, finding: Finding, ends: MessageBoundaries) -> bool:
        """Return True if a finding across messages is one identifier, not two separate numbers."""
        base = max(0, finding.start - CONTEXT_CHARS)
        translated = text[base : finding.end + CONTEXT_CHARS].translate(ASCII_DIGITS)
        boundaries = [(end - base, start - base) for end, start in ends]
        return is_one_value_across_messages(
            finding.kind, translated, finding.start - base, finding.end - base, boundaries
        )


def _build_entity_patterns(
    entities: frozenset[str], phone_detector: Phones | None
) -> Iterator[tuple[StreamPattern, EntityFinder]]:
    """Yield the patterns of the entities, each with the function that scores a match."""
    if "email" in entities:
        yield StreamPattern(EMAIL_PATTERN), _find_email
    if entities & {"phone", "card"}:
        finder = _build_digit_run_finder(phone_detector, cards="card" in entities)
        yield StreamPattern(numbers.DIGIT_RUN, CONTEXT_CHARS), finder
    if "iban" in entities:
        pattern, start = identifiers.IBAN_PATTERN, identifiers.IBAN_START
        iban = StreamPattern(pattern, marker_pattern=start, compiled=Pattern(start))
        yield iban, identifiers.find_iban
    if "ip" in entities:
        yield StreamPattern(IPV4_PATTERN, numbers.CHARS_AFTER), _find_ip_address
        yield StreamPattern(IPV6_PATTERN, numbers.CHARS_AFTER), _find_ip_address
    for entity in sorted(entities):
        if entity == "ssn" or entity.startswith("id_"):
            for detector in build_national_id_detectors(entity):
                yield StreamPattern(detector.regex, numbers.CHARS_AFTER), detector.find


def _build_digit_run_finder(phones: Phones | None, *, cards: bool) -> EntityFinder:
    def find(text: str, start: int, end: int) -> Iterator[Finding]:
        if cards:
            yield from identifiers.find_cards(DigitRun(text, start, end))
        if phones is not None:
            for part in numbers.split_digit_run(text, start, end):
                yield from phones.find(part)

    return find


def _find_email(text: str, start: int, end: int) -> Iterator[Finding]:
    separator = text.index("@", start)
    local = text[max(start, separator - MAX_LOCAL_CHARS) : separator].lstrip(".'%-")
    if local[1:] and ESCAPED_SPACE.match(text, max(0, separator - len(local) - 1)):
        local = local[1:].lstrip(".'%-")
    end = min(end, separator + 1 + MAX_DOMAIN_CHARS)
    if REPOSITORY_ADDRESS.fullmatch(text[separator - len(local) : end + 2]):
        return
    if local and not IMAGE_NAME.search(text[separator:end]):
        yield Finding(separator - len(local), end, "email")


def _find_ip_address(text: str, start: int, end: int) -> Iterator[Finding]:
    part = DigitRun(text, start, end)
    try:
        address = ipaddress.ip_address(part.raw)
    except ValueError:
        return
    if isinstance(address, ipaddress.IPv6Address) and not (
        address.is_loopback or address.ipv4_mapped or not address.is_reserved
    ):
        return  # nearly always code, as in a[1::2] or A::B
    adjacent = part.two_chars_before[-1:] + text[end : end + 1]
    following = text[end : end + 2]
    if any(character.isalnum() or character in "-_" for character in adjacent) or (
        following[:1] == "." and following[1:].isdigit()
    ):
        return
    score = 0.3 if part.has_keyword_nearby(numbers.CONTEXT_WORDS["version"]) else 0.9
    yield Finding(start, end, "ip", score=score)


class PiiConfig(Section):
    """Personal identifiers."""

    entities: TextList = Field(default_factory=lambda: [*DEFAULT_ENTITIES])
    """Entities: email, phone, card, iban, ssn, ip, or id_XX for the ID numbers of a country.
    Up to 10 digits without groups need a name nearby, such as the key `national_id`."""
    regions: TextList = Field(default_factory=lambda: [*DEFAULT_REGIONS])
    """Countries whose national phone numbers are detected. Groups of digits that only spaces
    separate are detected if a `0` or a bracket precedes them, or a word such as `phone` is near."""
    threshold: Share = 0.5
    """Minimum confidence of a finding."""


KIND = GuardKind(
    PiiConfig,
    lambda keys, context: Pii(keys.entities, keys.regions, keys.threshold),
    detections=(PII,),
)
