"""The events of a Messages stream whose blocks take turns, one block after the other.

The API sends block after block, each from its start to its stop. Where a server does not, guards
and clients would read each text in pieces: so while a block is open the events of others wait, for
its stop or for the end of the answer. What waits is bounded. No text changes, nor the order of the
events of one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from proxy.dialects.base import OrderedEvent
from proxy.dialects.messages.reading import block_number
from proxy.dialects.waiting import (
    MOST_EVENTS,
    NONE_OPEN,
    JoinedDelta,
    WaitingQueues,
    WaitingRoom,
)
from proxy.errors import AnswerTooLarge, UpstreamInvalid
from proxy.types import Json

START, DELTA, STOP = "content_block_start", "content_block_delta", "content_block_stop"
_OF_BLOCK = frozenset({START, DELTA, STOP})
_OF_END = frozenset({"message_delta", "message_stop"})
_TEXTS: Mapping[str, str] = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}
"""The member that has the text of a delta, by its type."""


class BlockOrder:
    """Feed it the events of one stream; it returns those whose turn it is. Raises
    ``AnswerTooLarge`` where too many wait, and ``UpstreamInvalid`` for more of a block that has
    stopped: what was held of it has been let go."""

    __slots__ = ("_blocks", "_moved", "_stopped")

    def __init__(self) -> None:
        self._moved = False  # from then on no event is where it came
        self._blocks = WaitingQueues[int | None](WaitingRoom(), _with_text)
        self._stopped: set[int | None] = set()

    def feed(self, event: Json, raw: bytes) -> list[OrderedEvent]:
        """Take the next event, return those that follow now."""
        kind, come = event.get("type"), OrderedEvent(event, raw, len(raw))
        is_named = isinstance(kind, str)
        if is_named and kind in _OF_END:
            out = [*self.left(), come]
        elif not is_named or kind not in _OF_BLOCK:
            out = [come]
        else:
            out = list(self._following(come))
        return [each._replace(raw=None) for each in out] if self._moved else out

    def left(self) -> list[OrderedEvent]:
        """Return all that waits: the stream has ended."""
        blocks = self._blocks
        blocks.open = NONE_OPEN
        out: list[OrderedEvent] = []
        while blocks:
            for event in blocks.next()[1]:
                out += self._of_blocks(event)
            blocks.open = NONE_OPEN
        return out

    def _following(self, come: OrderedEvent) -> Iterator[OrderedEvent]:
        """Return the events that an event of a block lets follow, one after the other: thousands
        may wait."""
        yield from self._of_blocks(come)
        while self._blocks and self._blocks.open is NONE_OPEN:
            for event in self._blocks.next()[1]:
                yield from self._of_blocks(event)

    def _of_blocks(self, come: OrderedEvent) -> Iterator[OrderedEvent]:
        """Return an event of a block if its turn is now."""
        blocks, kind = self._blocks, come.event["type"]
        block = block_number(come.event)
        if not blocks.is_free(block):
            self._moved = True
            blocks.put(block, come, _delta_of(come.event))
            return
        if kind == START:
            self._stopped.discard(block)
        elif kind == DELTA and block in self._stopped:
            raise UpstreamInvalid("The upstream continued a content block that had ended.")
        yield come
        blocks.open = block
        if kind == STOP:
            self._stop(block)

    def _stop(self, block: int | None) -> None:
        self._blocks.open = NONE_OPEN
        self._stopped.add(block)
        if len(self._stopped) > MOST_EVENTS:
            raise AnswerTooLarge("The upstream sent too many content blocks.")


def _delta_of(event: Json) -> JoinedDelta | None:
    """Return what a delta says that may be joined with others of its text; None for any other
    event."""
    delta = event.get("delta")
    if event["type"] != DELTA or not isinstance(delta, dict):
        return None
    kind = delta.get("type")
    member = _TEXTS.get(kind) if isinstance(kind, str) else None
    text = None if member is None else delta.get(member)
    return JoinedDelta(kind, text) if isinstance(text, str) else None


def _with_text(event: Json, text: str) -> Json:
    delta = event["delta"]
    return {**event, "delta": {**delta, _TEXTS[delta["type"]]: text}}
