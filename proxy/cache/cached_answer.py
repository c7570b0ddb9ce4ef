"""Cached answers, and the bytes that stores keep of them.

The bytes are a version, the key of the entry, and compressed lines of JSON: metadata, then the
documents of the answer in the API family that it came in, or its chunks. Short answers in a store
of the process are not compressed. A value that is no answer, or is stored under another key, is a
miss.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import orjson

from proxy.cache.echo import ECHOING
from proxy.cache.key import BYTES
from proxy.dialects import DIALECTS, hub, sse
from proxy.dialects.chat.merging import merged
from proxy.dialects.documents import Documents
from proxy.dialects.families import FAMILIES, crosses
from proxy.dialects.family import Family, ReadOptions
from proxy.dialects.frame_reader import StreamFrameReader, WholeFrameReader
from proxy.dialects.sequencer import Sequencer
from proxy.dialects.switched import client_family
from proxy.errors import ProxyError
from proxy.frozen import frozen
from proxy.offload import LARGE_BYTES
from proxy.types import AnswerPiece, Call, Chunk, Json
from proxy.types.events import STOP, FamilyName, Frame
from proxy.usage import MAX_TOKENS, TOKEN_TYPES, Tokens

VERSION, PLAIN_VERSION = b"\x01", b"\x03"  # of chunks
FRAMES_VERSION, PLAIN_FRAMES_VERSION = b"\x04", b"\x05"
SHORT_BYTES = 2048  # to compress so much takes as long as three of a call's spans, and saves 1 KB
RATIO = 16  # what is stored becomes hardly more than so many times as long, or is made in no time
NO_BOUND = 10**9  # of values: there was one when the answer came
LEVEL = 1  # half the size of level 6 costs three times the time on the loop
WINDOW_BITS, MEMORY_LEVEL = 14, 5  # 80 KB of memory for it, not 270, for as much of most answers
ABOUT_BYTES = 4096  # more than the first line ever has
ANSWERS = ("choices", "data")  # a whole answer is one of these lists


@frozen
class AnswerMetadata:
    """The origin of an answer. ``at`` is the time of its end in seconds since the epoch. ``family``
    is the API family of its documents, "" for chunks."""

    at: float
    streamed: bool
    upstream: str
    model: str
    tokens: Tokens
    family: FamilyName = ""


@frozen
class CachedAnswer:
    """An answer that can be shown again. ``lines`` are its documents. ``frames`` are read of them
    for a stream or a whole answer; chunks have ``events`` instead, which serve both.
    ``is_semantic``: it is the response to a similar prompt."""

    about: AnswerMetadata
    lines: tuple[bytes, ...]
    events: tuple[Json, ...] = ()
    frames: tuple[Frame, ...] = ()
    is_semantic: bool = False
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """Note how many bytes it has."""
        object.__setattr__(self, "size", sum(map(len, self.lines)))

    def chunks(self, *, streamed: bool) -> list[AnswerPiece]:
        """Return it in the form that is wanted; in the one it came in, byte for byte."""
        if self.about.family:
            return [*self.frames]
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
    versions = VERSION, PLAIN_VERSION
    if about.family:
        first.append(about.family)
        versions = FRAMES_VERSION, PLAIN_FRAMES_VERSION
    text = b"\n".join((orjson.dumps(first), *lines))
    if short_as_is and len(text) <= SHORT_BYTES:
        return b"".join((versions[1], key, text))
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL)
    return b"".join((versions[0], key, packer.compress(text), packer.flush()))


def inflate(key: bytes, value: bytes, max_bytes: int) -> bytes | None:
    """Return the lines of what was stored; None for another version, another key, or more than
    ``max_bytes`` of answer."""
    begin = 1 + BYTES
    if len(key) != BYTES or value[1:begin] != key:
        return None
    if value.startswith((PLAIN_VERSION, PLAIN_FRAMES_VERSION)):
        return value[begin:] if len(value) <= begin + SHORT_BYTES else None
    if not value.startswith((VERSION, FRAMES_VERSION)):
        return None
    reading = zlib.decompressobj()
    try:
        text = reading.decompress(memoryview(value)[begin:], max_bytes + ABOUT_BYTES)
    except zlib.error:
        return None
    return text if reading.eof else None


def parse(text: bytes, call: Call) -> CachedAnswer | None:
    """Read lines for a call; None for what ``dump`` does not write."""
    first, _, rest = text.partition(b"\n")
    try:
        about = _about(orjson.loads(first))
        if about.family:
            lines = rest.split(b"\n") if about.streamed else [rest]
            frames = _frames(about, lines, call)
            return CachedAnswer(about, tuple(lines), frames=frames) if frames else None
        lines = rest.split(b"\n")
        documents = Documents(NO_BOUND, vectors=call.head.endpoint == "embeddings")
        events = tuple(map(documents.read, lines))
    except (ValueError, TypeError, AttributeError, ProxyError):
        return None
    if not _is_answer(events, streamed=about.streamed):
        return None
    return CachedAnswer(about, tuple(lines), events)


def _frames(about: AnswerMetadata, lines: Sequence[bytes], call: Call) -> tuple[Frame, ...]:
    """Return the frames of documents as the client of a call gets them, none if the answer is not
    complete. Raises ``ProxyError``."""
    family, client = FAMILIES.get(about.family), client_family(call)
    if family is None:
        return ()
    options = ReadOptions(
        call=call,
        whole=not about.streamed,
        stream=call.stream and not about.streamed,
        crossing=crosses(client, family.name),
    )
    server = DIALECTS["openai"].server
    documents = Documents(NO_BOUND, vectors=family.name == "embeddings")
    if _passes(about, call):
        return _passed(family, [documents.read(line) for line in lines], lines, about)
    if options.whole:
        reader = WholeFrameReader(family, options, server, documents, limit=NO_BOUND)
        return tuple(reader.read(lines[0]))
    order = Sequencer() if options.crossing and FAMILIES[client].marks_parts else None
    stream = StreamFrameReader(family, options, server, documents, order=order)
    frames = [frame for line in (*lines, sse.DONE) for frame in stream.read(line)]
    return tuple(frames) if frames and frames[-1].last else ()


def _passes(about: AnswerMetadata, call: Call) -> bool:
    """Return True if the client gets the documents as they are, so that nobody needs events."""
    return (
        about.streamed == call.stream
        and about.family == client_family(call)
        and call.head.endpoint not in ECHOING
        and DIALECTS[call.head.dialect].client.add_verdicts is None
    )


def _passed(
    family: Family, docs: Sequence[Json], lines: Sequence[bytes], about: AnswerMetadata
) -> tuple[Frame, ...]:
    """Return documents as frames without events but the last one."""
    name = family.name
    if not about.streamed and type(docs[0].get(family.answers)) is not list:
        return ()
    frames = [
        Frame(
            events=(),
            family=name,
            doc=doc,
            raw=line,
            size=len(line) if len(line) > LARGE_BYTES else 0,
        )
        for doc, line in zip(docs, lines, strict=True)
    ]
    if about.streamed and family.done:
        frames.append(Frame((STOP,), name, last=True))
    else:
        frames[-1] = frames[-1]._replace(events=(STOP,), last=True)
    return tuple(frames)


def _about(value: Any) -> AnswerMetadata:
    """Raise ``ValueError`` or ``TypeError`` for what ``dump`` would not have written."""
    at, streamed, upstream, model, counts, *family = value
    if any(type(count) is not int or not 0 <= count <= MAX_TOKENS for count in counts.values()):
        raise ValueError("not a count of tokens")
    return AnswerMetadata(
        at=float(at),
        streamed=bool(streamed),
        upstream=str(upstream),
        model=str(model),
        tokens=Tokens(**counts),
        family=family[0] if family else "",
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
