"""How much work texts are, told before it is done: in characters of those that take longest.

With every guard on, a character of ASCII takes up to four microseconds; one beyond may be read as
eighteen. What it really takes is mostly a tenth of that, so what is looked at again and again is
weighed by how long it took the last time.
"""

from __future__ import annotations

from collections.abc import Iterator

MOST_TEXTS = 100_000  # strings and words that are looked at, of all arguments of one document
LIGHT = 1024  # what is read where it comes: some milliseconds of work at most
SHEET = 32 * 1024  # characters that are read together
EACH = 32  # what a text counts for by itself: many small ones take long too
BEYOND_ASCII = 4
IN_A_SECOND = 250_000


def weight_of(text: str) -> int:
    """Return the weight of reading a text."""
    return len(text) if text.isascii() else BEYOND_ASCII * len(text)


def weight_of_work(seconds: float) -> int:
    """Return the weight of what takes so many seconds of a processor."""
    return int(seconds * IN_A_SECOND)


def cut(text: str) -> Iterator[str]:
    """Return a text in the pieces that are read together, at least one."""
    return (text[start : start + SHEET] for start in range(0, len(text) or 1, SHEET))
