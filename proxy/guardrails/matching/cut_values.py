"""Whether two messages that meet have cut one value in two, or have a value each.

A message that ends with a number and one that begins with one stand beside each other every day:
results of tools, quantities, dates. What they say together is a value only where one of them cannot
be read without the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from proxy.guardrails.matching.numbers import DATE, NAMES, is_named

Ends = Sequence[tuple[int, int]]
"""Where, within a finding, one message ends and the next begins."""

NEAR = 40  # characters of a message in which a number of it shows
DIALLED = re.compile(r"\(?(?:\+|00[1-9][0-9]{1,2}[ )/-]|00[1-9][0-9]{4})")
# What begins before an @ by itself: a number, or a word behind which somebody is mentioned.
PLAIN = re.compile(r"[0-9 .,%()/+-]*|[^\W\d_]*")
VERSION = re.compile(r"@v?[0-9]+(?:\.[0-9]+)*\.$")  # of a package, such as pkg@1.2.
# A fraction, an amount, an address of a network, a time: numbers of no other.
ENDS_WHOLE = re.compile(r"(?:^|[^0-9+.])-?[0-9]+(?:[.,:][0-9]+)+$")
BEGINS_WHOLE = re.compile(r"-?[0-9]+(?:[.,:][0-9]+)+(?![0-9])")


def is_cut(kind: str, text: str, start: int, end: int, ends: Ends) -> bool:
    """True if what was found from ``start`` to ``end``, over the ends of messages, is one value."""
    return all(_is_cut_at(kind, text, (start, end), one, two) for one, two in ends)


def _is_cut_at(kind: str, text: str, span: tuple[int, int], one: int, two: int) -> bool:
    start, end = span
    before = text[start:one]
    if kind == "email":
        return not (PLAIN.fullmatch(before) or VERSION.search(before))
    ended, begun = text[max(0, one - NEAR) : one].rstrip(), text[two : two + NEAR].lstrip()
    if _ends_whole(ended) or _begins_whole(begun):
        return False
    if kind != "phone":
        return True
    return bool(DIALLED.match(before)) or is_named(text, start, end, NAMES["phone"])


def _ends_whole(text: str) -> bool:
    return bool(ENDS_WHOLE.search(text)) or any(m.end() == len(text) for m in DATE.finditer(text))


def _begins_whole(text: str) -> bool:
    return bool(BEGINS_WHOLE.match(text) or DATE.match(text))
