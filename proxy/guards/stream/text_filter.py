"""What a text of a stream goes through, and what comes out of it piece by piece."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ReleasedPiece(NamedTuple):
    """What became of the next ``size`` characters; they are the text itself unless ``changed``."""

    text: str
    size: int
    changed: bool


class TextFilter(Protocol):
    """What a text goes through that comes in pieces. ``lookback`` is what it may hold for long."""

    @property
    def lookback(self) -> int: ...

    @property
    def held(self) -> int:
        """Characters that have come and are neither released nor masked away."""

    def weight(self, text: str) -> int:
        """Return how much there is to read when these characters come."""

    def weight_of_end(self) -> int:
        """Return how much there is to read when the text ends."""

    def feed(self, text: str) -> list[ReleasedPiece]:
        """Take the next characters, return the pieces that they release."""

    def let_go(self) -> list[ReleasedPiece]:
        """Return all that is held, as something else is to be shown behind it. The text may go on
        then, and is read as one, as far as this can: else it ends, as with ``flush``."""

    def flush(self) -> list[ReleasedPiece]:
        """End the text, return all that is left of it. What is fed next is another text."""


class WholeTextFilter(TextFilter, Protocol):
    """One that takes texts that do not come in pieces, too."""

    def take(self, text: str) -> list[ReleasedPiece]:
        """Take a text that is whole, return all of it: what ``feed`` and ``flush`` would give."""
