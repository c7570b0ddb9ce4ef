"""The opening of a stream: chunks that say nothing yet wait for the first that does.

A chat opens with a role. Were that shown at once, a guard that blocks the very first words could no
more answer with an error, but only break a stream off.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from proxy.guardrails.stream.chunk_parts import is_whole
from proxy.guardrails.text.walk import Found, MemberName, Text, answer_walk
from proxy.types import Chunk

MOST = 16  # chunks that wait; a stream that still says nothing goes on as it comes
MOST_VALUES = 1024  # that are looked through for a text; a chunk of more says something


class FirstContent:
    """Feed it what may be shown; it gives that as soon as something is said, or the end is."""

    __slots__ = ("_open", "_waiting")

    def __init__(self, *, waits: bool) -> None:
        self._open = not waits
        self._waiting: list[Chunk] = []

    def feed(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        if self._open or not chunks:
            return chunks
        self._waiting += chunks
        if len(self._waiting) <= MOST and not any(map(_says, chunks)):
            return ()
        self._open = True
        waited, self._waiting = self._waiting, []
        return waited


def _is_shown(found: Found) -> bool:
    """True of a text, but for those of the frame that an event is, and for names of members: one
    that is not known, as beside counts of tokens, is no word of the answer yet."""
    if not isinstance(found, Text) or is_whole(found.path):
        return False
    return not isinstance(found.path[-1], MemberName)


def _says(chunk: Chunk) -> bool:
    data = chunk.data
    if chunk.last or data is None:
        return True
    found = [*islice(answer_walk(data, cut=True), MOST_VALUES)]
    if len(found) == MOST_VALUES or any(map(_is_shown, found)):
        return True
    choices = data.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") for choice in choices
    )
