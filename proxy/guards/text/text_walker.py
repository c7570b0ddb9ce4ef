"""Collects the texts of a document, and weighs the work of inspecting them.

A weight is a number of characters of the slowest texts. With all guards, a character of ASCII takes
up to 4 µs and any other up to 18. Most texts take a tenth, so what is inspected repeatedly is
weighed by its last time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from proxy.guards.text.walk import Found, Opaque, Text, Texts, answer_walk, request_walk
from proxy.types import Json

STEP = 1024  # values that are read before other tasks have a turn
MOST_TEXTS = 100_000  # strings and words inspected in all arguments of one document
LIGHT = 1024  # weight that is inspected at once: a few milliseconds of work
SHEET = 32 * 1024  # characters that are inspected together
EACH = 32  # weight of a text by itself: many small texts take long
BEYOND_ASCII = 4  # weight of a character beyond ASCII
IN_A_SECOND = 250_000  # weight of one second of CPU


def weight_of(text: str) -> int:
    """Return the weight of inspecting a text."""
    return len(text) if text.isascii() else BEYOND_ASCII * len(text)


def weight_of_work(seconds: float) -> int:
    """Return the weight of seconds of CPU."""
    return int(seconds * IN_A_SECOND)


def cut(text: str) -> Iterator[str]:
    """Yield a text in pieces that are inspected together, at least one."""
    return (text[start : start + SHEET] for start in range(0, len(text) or 1, SHEET))


def request_texts(body: Json) -> Texts:
    """Return all texts of a request, in order."""
    return collect_texts(request_walk(body))


def answer_texts(data: Json, *, cut: bool = False) -> Texts:
    """Return all texts of a response; ``cut``: of one chunk of a stream."""
    return collect_texts(answer_walk(data, cut=cut))


def collect_texts(walk: Iterator[Found]) -> Texts:
    """Return the texts of a walk."""
    (walker := TextWalker(walk)).advance()
    return walker.texts


async def in_steps(walk: Iterator[Found], most: int = MOST_TEXTS) -> Texts:
    """Return the texts of a walk. Other tasks have a turn between its steps."""
    walker = TextWalker(walk, most)
    while walker.advance(STEP):  # noqa: ASYNC110  # a turn for other tasks, nothing is awaited
        await asyncio.sleep(0)
    return walker.texts


@dataclass(slots=True)
class TextWalker:
    """Collects the texts of a walk step by step, up to ``remaining`` values within arguments, which
    only this class counts because they are in a text."""

    walk: Iterator[Found]
    remaining: int = MOST_TEXTS
    _texts: list[Text] = field(default_factory=list)
    _opaque: list[Opaque] = field(default_factory=list)

    def advance(self, steps: int | None = None) -> bool:
        """Read a number of values, or all. Return False at the end."""
        taken = 0
        for found in islice(self.walk, steps):
            taken += 1
            if isinstance(found, Text):
                self._texts.append(found)
            elif isinstance(found, Opaque):
                self._opaque.append(found)
            elif found is not None:
                self.remaining -= 1
            if self.remaining < 0:
                return False
        return taken == steps

    @property
    def texts(self) -> Texts:
        """The texts up to here."""
        unread = "too_many_texts" if self.remaining < 0 else None
        return Texts(tuple(self._texts), tuple(self._opaque), unread)
