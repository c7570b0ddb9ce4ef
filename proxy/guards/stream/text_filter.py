"""Interfaces of filters of streamed text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from proxy.guards.findings import RuleTally
from proxy.guards.text.walk import Text


class ReleasedText(NamedTuple):
    """Text that replaces the next ``size`` characters. It equals them unless ``is_changed``."""

    text: str
    size: int
    is_changed: bool


class TextFilter(Protocol):
    """Inspects one text that arrives in pieces, and releases what is safe to send.

    Feeding a text in any pieces releases the same text as feeding it at once. ``lookback`` is the
    longest suffix, in characters, that may be held until more text arrives.
    """

    @property
    def lookback(self) -> int: ...

    def estimate_feed_work(self, text: str) -> int:
        """Return the work of feeding ``text`` next, as a number of ASCII characters."""

    def estimate_close_work(self) -> int:
        """Return the work of closing the text, which may inspect all of it, in the same unit."""

    def feed(self, text: str) -> list[ReleasedText]:
        """Add characters and return the pieces that are now safe."""

    def flush(self) -> list[ReleasedText]:
        """Release all held text, because something else is sent next.

        The text may continue, and a filter inspects it as one text if it can.
        """

    def close(self) -> list[ReleasedText]:
        """End the text and return all remaining pieces. The next ``feed`` starts another text."""


class TextFilterFactory(Protocol):
    """Makes the filters of the texts of a stream.

    ``tallies`` are the rules that may withhold findings. ``texts_continue_after_finish`` is True if
    texts may continue after their choice has finished.
    """

    @property
    def tallies(self) -> Sequence[RuleTally]: ...

    @property
    def texts_continue_after_finish(self) -> bool: ...

    def must_filter(self, text: Text) -> bool:
        """Return True if a text needs a filter."""

    def make_filter(self, text: Text, *, is_arguments: bool, is_over_limit: bool) -> TextFilter:
        """Return a new filter. With ``is_over_limit`` no more are allowed, and its rules fail."""
