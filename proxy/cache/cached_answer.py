"""Cached responses and their encoding in stores.

The encoding is a version, the key of the entry, and compressed lines of JSON: metadata, then the
documents of the response in their API family. Short responses in the memory of the process are not
compressed. An invalid value, or one with another key, is a miss.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import orjson

from proxy.cache.echo import ECHOING
from proxy.cache.key import BYTES
from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, client_family, crosses
from proxy.dialects.family import Family, ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.wire import sse
from proxy.dialects.wire.upstream_json import Documents
from proxy.errors import ProxyError
from proxy.money.usage import MAX_TOKENS, TOKEN_TYPES, Tokens
from proxy.runtime.frozen import frozen
from proxy.runtime.offload import LARGE_BYTES
from proxy.types import Call, Json
from proxy.types.events import STOP, FamilyName, Frame

VERSION, PLAIN_VERSION = b"\x04", b"\x05"
SHORT_BYTES = 2048  # compressing this much takes as long as three spans and saves 1 KB
RATIO = 16  # estimated length of a text by its compressed length
NO_BOUND = 10**9  # values per document: they were bounded when the response was received
LEVEL = 1  # level 6 halves the size and triples the time
WINDOW_BITS, MEMORY_LEVEL = 14, 5  # 80 KB of memory instead of 270
ABOUT_BYTES = 4096  # bound of the metadata


@frozen
class AnswerMetadata:
    """Origin of a response. ``at`` is its end in seconds since the epoch, ``family`` the API
    family of its documents."""

    at: float
    streamed: bool
    upstream: str
    model: str
    tokens: Tokens
    family: FamilyName


@frozen
class CachedAnswer:
    """Response read from ``size`` bytes. ``is_semantic`` is True for a response to a similar
    prompt."""

    about: AnswerMetadata
    frames: tuple[Frame, ...]
    size: int
    is_semantic: bool = False


def dump(
    key: bytes, about: AnswerMetadata, lines: Sequence[bytes], *, short_as_is: bool = False
) -> bytes:
    """Encode a response. ``short_as_is`` skips compression of a short one. No line may contain a
    newline."""
    every = zip(TOKEN_TYPES, about.tokens.counts(), strict=True)
    counts = {name: count for name, count in every if count}
    counts |= about.tokens.extra_counts()
    first = [about.at, about.streamed, about.upstream, about.model, counts, about.family]
    text = b"\n".join((orjson.dumps(first), *lines))
    if short_as_is and len(text) <= SHORT_BYTES:
        return b"".join((PLAIN_VERSION, key, text))
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL)
    return b"".join((VERSION, key, packer.compress(text), packer.flush()))


def inflate(key: bytes, value: bytes, max_bytes: int) -> bytes | None:
    """Decompress an encoded response. Return None for another version, another key, or a
    response of more than ``max_bytes``."""
    begin = 1 + BYTES
    if len(key) != BYTES or value[1:begin] != key:
        return None
    if value.startswith(PLAIN_VERSION):
        return value[begin:] if len(value) <= begin + SHORT_BYTES else None
    if not value.startswith(VERSION):
        return None
    reading = zlib.decompressobj()
    try:
        text = reading.decompress(memoryview(value)[begin:], max_bytes + ABOUT_BYTES)
    except zlib.error:
        return None
    return text if reading.eof else None


def parse(text: bytes, call: Call) -> CachedAnswer | None:
    """Parse a decompressed response for a call. Return None if it is invalid."""
    first, _, rest = text.partition(b"\n")
    try:
        about = _about(orjson.loads(first))
        frames = _frames(about, rest.split(b"\n") if about.streamed else [rest], call)
    except (ValueError, TypeError, AttributeError, ProxyError):
        return None
    return CachedAnswer(about, frames, len(rest)) if frames else None


def _frames(about: AnswerMetadata, lines: Sequence[bytes], call: Call) -> tuple[Frame, ...]:
    """Return the frames of documents as the call's client gets them, none if the response is
    incomplete. Raises ``ProxyError``."""
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
    documents = Documents(NO_BOUND, vectors=family.has_vectors)
    if _passes(about, call):
        return _passed(family, [documents.read(line) for line in lines], lines, about)
    if options.whole:
        reader = FamilyFrameReader(family, options, server, documents, limit=NO_BOUND)
        return tuple(reader.read(lines[0]))
    order = Sequencer() if options.crossing and FAMILIES[client].marks_parts else None
    stream = FamilyFrameReader(family, options, server, documents, order=order)
    frames = [frame for line in (*lines, sse.DONE) for frame in stream.read(line)]
    return tuple(frames) if frames and frames[-1].last else ()


def _passes(about: AnswerMetadata, call: Call) -> bool:
    """Return True if the client gets the documents unchanged, so that no events are needed."""
    return (
        about.streamed == call.stream
        and about.family == client_family(call)
        and call.head.endpoint not in ECHOING
        and DIALECTS[call.head.dialect].client.add_verdicts is None
    )


def _passed(
    family: Family, docs: Sequence[Json], lines: Sequence[bytes], about: AnswerMetadata
) -> tuple[Frame, ...]:
    """Return documents as frames of which only the last has an event."""
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
    """Raises ``ValueError`` or ``TypeError`` for invalid metadata."""
    at, streamed, upstream, model, counts, family = value
    if any(type(count) is not int or not 0 <= count <= MAX_TOKENS for count in counts.values()):
        raise ValueError("not a count of tokens")
    return AnswerMetadata(
        at=float(at),
        streamed=bool(streamed),
        upstream=str(upstream),
        model=str(model),
        tokens=Tokens(**counts),
        family=family,
    )
