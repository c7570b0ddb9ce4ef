"""Whether a text reads in one way alone, told by one pass: nearly all texts of ASCII do."""

from __future__ import annotations

from proxy.guardrails.matching.re2set import PatternSet
from proxy.guardrails.text import base64_text, within_words
from proxy.guardrails.text.confusables import CONTROLS

DISGUISES = PatternSet(
    [
        rf"[&%\\{CONTROLS}]",  # an escape, or what shows nothing
        rf"{base64_text.ONE}{{{base64_text.RUN}}}|(?i:base64,)",
        within_words.SIEVE,
        r"(?:\A|[^A-Za-z])(?:[A-Za-z][^A-Za-z]){2}[A-Za-z](?:[^A-Za-z]|\z)",  # letters apart
    ]
).sieve
"""What a text of ASCII has that may have another reading."""


def has_one_reading(raw: bytes) -> bool:
    """True if a text of ASCII has no other reading, nor has any of its lines; it may be False of
    several lines where it is true of each."""
    return DISGUISES.match(raw) == DISGUISES.nothing
