"""What a detector is, and what it finds: places in a text, and nothing about what to do with them.

A detector is pure: a frozen value made from the keys that the policy gives it, which looks at one
text at a time. What becomes of a finding (a block, a mask, a flag) is for the policy to say; where
the text came from and how it was cut is for the engine to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in a text: characters from ``start`` up to ``end``, which is not part of it.

    ``kind`` is of a set that is closed per detector, as it becomes a metric's label; ``score`` is
    from 0 to 1.
    """

    start: int
    end: int
    kind: str
    score: float = 1.0


class Detector(Protocol):
    """One way of looking at a text.

    ``reach`` bounds what a stream must hold back: a finding, together with all that it depends on
    around it (a word's edge is one character), lies within so many characters; None where only the
    whole text can tell. From the beginning of a finding on, or from where none is under way, the
    same is found as from the beginning of the text.
    """

    @property
    def reach(self) -> int | None: ...

    def find(self, text: str) -> Sequence[Finding]:
        """Give all findings, by their start; they do not overlap. Takes time linear in the text."""
