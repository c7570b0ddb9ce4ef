"""What a detector can tell of texts that meet: whether a value was cut, or two stand there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from proxy.types.guard import Finding


class Cuttable(Protocol):
    """A detector of values that may as well stand beside each other: what it finds over the end of
    a message may be two of them. What one message has does not go on in the next."""

    def is_cut(self, text: str, found: Finding, ends: Sequence[tuple[int, int]]) -> bool:
        """True if a finding in messages read as one is a value that was cut; ``ends`` are where,
        within it, one message ends and the next begins."""


def is_cuttable(detector: object) -> TypeGuard[Cuttable]:
    return hasattr(detector, "is_cut")
