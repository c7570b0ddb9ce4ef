"""A text of a streamed answer that goes on from chunk to chunk, and the chunks that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from proxy.guardrails.stream.chunk_parts import only, put
from proxy.guardrails.stream.text_filter import ReleasedPiece, TextFilter
from proxy.guardrails.text.replace import replaced
from proxy.guardrails.text.walk import Path
from proxy.types import Chunk


@dataclass(slots=True)
class _Held:
    """A chunk that waits: ``left`` characters of the text at ``path`` are not clear."""

    chunk: Chunk
    path: Path
    left: int
    clear: list[str] = field(default_factory=list)
    size: int = 0
    masked: bool = False
    split: bool = False


class TextStream:
    """One text that goes on from chunk to chunk, and the chunks that wait for it."""

    __slots__ = ("_queue", "_window", "ends")

    def __init__(self, window: TextFilter, *, ends: bool) -> None:
        self._window = window
        self.ends = ends
        self._queue: deque[_Held] = deque()

    def weight(self, text: str) -> int:
        return self._window.weight(text)

    def weight_of_end(self) -> int:
        return self._window.weight_of_end()

    def feed(self, chunk: Chunk, path: Path, text: str) -> list[Chunk]:
        queue = self._queue
        queue.append(_Held(chunk, path, len(text)))
        pieces = self._window.feed(text)
        return self._taken(pieces) if pieces or queue[0].size else []

    def let_go(self) -> list[Chunk]:
        """Return the chunks that wait, as others are to follow them, though the text may go on."""
        return self._taken(self._window.let_go())

    def flush(self) -> list[Chunk]:
        return self._taken(self._window.flush())

    def _taken(self, pieces: Iterable[ReleasedPiece]) -> list[Chunk]:
        out: list[Chunk] = []
        for piece in pieces:
            self._take(piece, out)
        first = self._queue[0].size if self._queue else 0
        if first and first > self._window.reach:
            out.append(_first_part(self._queue[0]))
        return out

    def _take(self, piece: ReleasedPiece, out: list[Chunk]) -> None:
        """Spread a piece over the chunks that it is of; a replacement goes to the first of them."""
        text, size = piece.text, piece.size
        while size:
            held = self._queue[0]
            taken = min(held.left, size)
            shown, text = (text, "") if piece.changed else (text[:taken], text[taken:])
            held.clear.append(shown)
            held.size += taken
            held.left -= taken
            held.masked = held.masked or piece.changed
            size -= taken
            if not held.left:
                out.append(_whole(self._queue.popleft()))


def _whole(held: _Held) -> Chunk:
    if not (held.masked or held.split) or held.chunk.data is None:
        return held.chunk
    text = "".join(held.clear)
    if held.masked:
        return replace(held.chunk, data=replaced(held.chunk.data, {held.path: text}), raw=None)
    return replace(held.chunk, data=put(held.chunk.data, held.path, text), raw=None)


def _first_part(held: _Held) -> Chunk:
    """Return a chunk of the clear text of one that is too long to wait for."""
    data, _ = only(held.chunk.data or {}, held.path, "".join(held.clear))
    held.clear, held.size, held.split = [], 0, True
    return replace(held.chunk, data=data, raw=None, last=False)
