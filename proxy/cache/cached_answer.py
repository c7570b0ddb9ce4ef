"""A kept answer: what a client was shown, in OpenAI's form, and the bytes it is stored as.

The bytes are a version, the key they belong to, and compressed lines of JSON: one that says what
the answer is, then one for each of its chunks. Those of a short answer that nobody else can read
are not compressed. They are read as data, never as code, and only under the key that they were
stored under: a store that mixes its replies up causes misses, no more. So does a value that is well
formed and no answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import orjson

from proxy.cache.key import BYTES
from proxy.cache.merging import merged
from proxy.dialects import hub
from proxy.dialects.documents import Documents
from proxy.errors import UpstreamInvalid
from proxy.frozen import frozen
from proxy.types import Chunk, Json
from proxy.usage import MAX_TOKENS, TOKEN_TYPES, Tokens

VERSION, PLAIN_VERSION = b"\x01", b"\x03"
SHORT_BYTES = 2048  # to compress so much takes as long as three of a call's spans, and saves 1 KB
RATIO = 16  # what is stored becomes hardly more than so many times as long, or is made in no time
NO_BOUND = 10**9  # of values: there was one when the answer came
LEVEL = 1  # half the size of level 6 costs three times the time on the loop
WINDOW_BITS, MEMORY_LEVEL = 14, 5  # 80 KB of memory for it, not 270, for as much of most answers
ABOUT_BYTES = 4096  # more than the first line ever has
ANSWERS = ("choices", "data")  # a whole answer is one of these lists


@frozen
class AnswerMetadata:
    """Where an answer came from: when it was whole, in seconds since the epoch, who gave it as a
    stream or not, and what it used."""

    at: float
    streamed: bool
    upstream: str
    model: str
    tokens: Tokens


@frozen
class CachedAnswer:
    """An answer that can be shown again, as a stream and as a whole. ``lines`` are its chunks,
    ``events`` the same as JSON. ``is_semantic``: it is the response to a similar prompt."""

    about: AnswerMetadata
    lines: tuple[bytes, ...]
    events: tuple[Json, ...]
    is_semantic: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """Note how many bytes it has."""
        object.__setattr__(self, "size", sum(map(len, self.lines)))

    def chunks(self, *, streamed: bool) -> list[Chunk]:
        """Return it in the form that is wanted; in the one it came in, byte for byte."""
        if streamed:
            return [*self._events()]
        if self.about.streamed:
            return [Chunk(merged(self.events), last=True, size=self.size)]
        return [Chunk(self.events[0], self.lines[0], last=True, size=self.size)]

    def _events(self) -> Iterator[Chunk]:
        if self.about.streamed:
            for event, line in zip(self.events, self.lines, strict=True):
                yield Chunk(event, line, size=len(line))
        else:
            size = self.size
            for event in hub.as_stream(self.events[0]):
                yield Chunk(event, size=size)
        yield Chunk(None, last=True)


def dump(
    key: bytes, about: AnswerMetadata, lines: Sequence[bytes], *, short_as_is: bool = False
) -> bytes:
    """Return the bytes to store, a short answer without compression where that is wanted. No line
    may hold a line end, which JSON need not."""
    every = zip(TOKEN_TYPES, about.tokens.counts(), strict=True)
    counts = {name: count for name, count in every if count}
    counts |= about.tokens.beside()
    first = [about.at, about.streamed, about.upstream, about.model, counts]
    text = b"\n".join((orjson.dumps(first), *lines))
    if short_as_is and len(text) <= SHORT_BYTES:
        return b"".join((PLAIN_VERSION, key, text))
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL)
    return b"".join((VERSION, key, packer.compress(text), packer.flush()))


def inflate(key: bytes, value: bytes, max_bytes: int) -> bytes | None:
    """Return the lines of what was stored; None for another version, another key, or more than
    ``max_bytes`` of answer."""
    prefix = VERSION + key
    if len(key) != BYTES or not value.startswith((prefix, PLAIN_VERSION + key)):
        return None
    if value.startswith(PLAIN_VERSION):
        return value[len(prefix) :] if len(value) <= len(prefix) + SHORT_BYTES else None
    reading = zlib.decompressobj()
    try:
        text = reading.decompress(memoryview(value)[len(prefix) :], max_bytes + ABOUT_BYTES)
    except zlib.error:
        return None
    return text if reading.eof else None


def parse(text: bytes, *, vectors: bool = False) -> CachedAnswer | None:
    """Read lines, which may be of ``vectors``; None for what ``dump`` does not write."""
    first, *lines = text.split(b"\n")
    try:
        about = _about(orjson.loads(first))
        events = tuple(map(Documents(NO_BOUND, vectors).read, lines))
    except (ValueError, TypeError, AttributeError, UpstreamInvalid):
        return None
    if not _is_answer(events, streamed=about.streamed):
        return None
    return CachedAnswer(about, tuple(lines), events)


def _about(value: Any) -> AnswerMetadata:
    """Raise ``ValueError`` or ``TypeError`` for what ``dump`` would not have written."""
    at, streamed, upstream, model, counts = value
    if any(type(count) is not int or not 0 <= count <= MAX_TOKENS for count in counts.values()):
        raise ValueError("not a count of tokens")
    return AnswerMetadata(
        at=float(at),
        streamed=bool(streamed),
        upstream=str(upstream),
        model=str(model),
        tokens=Tokens(**counts),
    )


def _is_answer(events: Sequence[Json], *, streamed: bool) -> bool:
    """True if these are the events of a stream, or one whole answer."""
    if not all(map(_has_choices, events)):
        return False
    if streamed:
        return any(event.get("choices") for event in events)
    return len(events) == 1 and any(isinstance(events[0].get(name), list) for name in ANSWERS)


def _has_choices(event: Json) -> bool:
    """True if the choices of an event, if it has any, are such as can be shown in either form."""
    choices = event.get("choices")
    if choices is None:
        return True
    return isinstance(choices, list) and all(map(_is_choice, choices))


def _is_choice(choice: Any) -> bool:
    if not isinstance(choice, dict) or type(choice.get("index", 0)) is not int:
        return False
    message = choice.get("message") or choice.get("delta") or {}
    if not isinstance(message, dict) or not isinstance(choice.get("text") or "", str):
        return False
    calls = message.get("tool_calls") or []
    return isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
