"""Collects the texts that a walk over a document finds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from proxy.guardrails.text.walk import Found, Opaque, Text, Texts, answer_walk, request_walk
from proxy.guardrails.text.weight import MOST_TEXTS
from proxy.types import Json

STEP = 1024  # values that are read in one go


def request_texts(body: Json) -> Texts:
    """Return all texts of a request in the order in which they stand."""
    return gathered(request_walk(body))


def answer_texts(data: Json, *, cut: bool = False) -> Texts:
    """Return all texts of an answer; ``cut``: of one chunk of a stream, whose arguments are cut."""
    return gathered(answer_walk(data, cut=cut))


async def in_steps(walk: Iterator[Found], most: int = MOST_TEXTS) -> Texts:
    """Return what a walk finds; others have their turn between its steps. ``most`` bounds the
    values within arguments that are read."""
    gathering = Gathering(walk, most)
    while gathering.go_on(STEP):  # noqa: ASYNC110  # others have their turn, nothing is awaited
        await asyncio.sleep(0)
    return gathering.texts


@dataclass(slots=True)
class Gathering:
    """What a walk finds, some values at a time. It ends where there are more values within
    arguments than are looked at: nobody else counts them, as they stand in a text."""

    walk: Iterator[Found]
    left: int = MOST_TEXTS
    _texts: list[Text] = field(default_factory=list)
    _opaque: list[Opaque] = field(default_factory=list)

    def go_on(self, steps: int | None = None) -> bool:
        """Go on for so many values, or to the end; False if there is nothing more to find."""
        taken = 0
        for each in islice(self.walk, steps):
            taken += 1
            if isinstance(each, Text):
                self._texts.append(each)
            elif isinstance(each, Opaque):
                self._opaque.append(each)
            elif each is not None:
                self.left -= 1
            if self.left < 0:
                return False
        return taken == steps

    @property
    def texts(self) -> Texts:
        """What was found so far."""
        unread = "too_many_texts" if self.left < 0 else None
        return Texts(tuple(self._texts), tuple(self._opaque), unread)


def gathered(walk: Iterator[Found]) -> Texts:
    """Return what a walk finds."""
    (gathering := Gathering(walk)).go_on()
    return gathering.texts
