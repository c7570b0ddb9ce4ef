"""Cached responses and their encoding in stores.

A stored value has a version byte, the key of the entry, and compressed lines of JSON. The first
line is the metadata, the others are the documents of the response in their API family. Short
responses in the memory of the process are not compressed. An invalid value is a miss, and so is a
value with another key.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import orjson

from proxy.cache.key import CALLER_FIELDS, KEY_BYTES
from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, find_client_family, needs_translation
from proxy.dialects.family import Family, ReadOptions
from proxy.dialects.frames.reader import FamilyFrameReader
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.responses.schema import ECHOED_MEMBERS
from proxy.dialects.wire import sse
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.errors import ProxyError
from proxy.money.usage import MAX_TOKENS, TOKEN_TYPES, Tokens
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.runtime.frozen import frozen
from proxy.types import Call, Json
from proxy.types.events import RESPONSE_END, FamilyName, Frame

COMPRESSED_VERSION, PLAIN_VERSION = b"\x04", b"\x05"
MAX_PLAIN_BYTES = 2048  # shorter documents are not compressed: it would save 1 KB at most
COMPRESSION_RATIO = 16  # estimated ratio of the decompressed to the compressed length
MAX_VALUES = 10**9  # values per document, which were counted when the response was received
COMPRESSION_LEVEL = 1  # zlib level; level 6 halves the size and triples the time
WINDOW_BITS, MEMORY_LEVEL = 14, 5  # 80 KB of memory instead of 270
MAX_METADATA_BYTES = 4096  # maximum size of the metadata of an answer

MAX_DECODED_ANSWERS = 64  # decoded answers that are kept
# Bytes of text in a decoded answer, which uses about ten times as much memory.
MAX_DECODED_BYTES = 16 * 1024

ECHOING_ENDPOINTS = frozenset({"responses"})
"""Endpoints whose responses repeat the request."""
_ECHOED_CALLER = sorted(CALLER_FIELDS & ECHOED_MEMBERS.keys())


@frozen
class AnswerMetadata:
    """Origin of a response.

    ``ended_at`` is in seconds since the epoch, ``family`` the API family of the documents.
    """

    ended_at: float
    streamed: bool
    upstream: str
    model: str
    tokens: Tokens
    family: FamilyName


@frozen
class CachedAnswer:
    """Response read from ``size`` bytes.

    ``is_semantic`` is True for a response to a similar prompt.
    """

    metadata: AnswerMetadata
    frames: tuple[Frame, ...]
    size: int
    is_semantic: bool = False


def serialize_answer(
    key: bytes,
    metadata: AnswerMetadata,
    lines: Sequence[bytes],
    *,
    leave_short_uncompressed: bool = False,
) -> bytes:
    """Encode a response.

    ``leave_short_uncompressed`` skips compression of a short one. No line may contain a newline.
    """
    pairs = zip(TOKEN_TYPES, metadata.tokens.list_counts_by_type(), strict=True)
    counts = {name: count for name, count in pairs if count}
    counts |= metadata.tokens.list_extra_billed_counts()
    origin = metadata.ended_at, metadata.streamed, metadata.upstream, metadata.model
    text = b"\n".join((orjson.dumps([*origin, counts, metadata.family]), *lines))
    if leave_short_uncompressed and len(text) <= MAX_PLAIN_BYTES:
        return b"".join((PLAIN_VERSION, key, text))
    compressor = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, WINDOW_BITS, MEMORY_LEVEL)
    return b"".join((COMPRESSED_VERSION, key, compressor.compress(text), compressor.flush()))


def decompress_answer(key: bytes, value: bytes, max_bytes: int) -> bytes | None:
    """Decompress an encoded response.

    Return None for another version, another key, or a response of more than ``max_bytes``.
    """
    start = 1 + KEY_BYTES
    if len(key) != KEY_BYTES or value[1:start] != key:
        return None
    if value.startswith(PLAIN_VERSION):
        return value[start:] if len(value) <= start + MAX_PLAIN_BYTES else None
    if not value.startswith(COMPRESSED_VERSION):
        return None
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(memoryview(value)[start:], max_bytes + MAX_METADATA_BYTES)
    except zlib.error:
        return None
    return text if decompressor.eof else None


def parse_answer(text: bytes, call: Call) -> CachedAnswer | None:
    """Parse a decompressed response for a call. Return None if it is invalid."""
    head, _, documents = text.partition(b"\n")
    try:
        metadata = _parse_metadata(orjson.loads(head))
        lines = documents.split(b"\n") if metadata.streamed else [documents]
        frames = _make_frames(metadata, lines, call)
    except (ValueError, TypeError, AttributeError, ProxyError):
        return None
    return CachedAnswer(metadata, frames, len(documents)) if frames else None


def _make_frames(metadata: AnswerMetadata, lines: Sequence[bytes], call: Call) -> tuple[Frame, ...]:
    """Return the frames of documents for the call's client, none if the response is incomplete.

    Raises ``ProxyError``.
    """
    family, client = FAMILIES.get(metadata.family), find_client_family(call)
    if family is None:
        return ()
    options = ReadOptions(
        call=call,
        whole=not metadata.streamed,
        stream=call.stream and not metadata.streamed,
        is_translated=needs_translation(client, family.name),
        shown_as=FAMILIES[client].shown_as,
    )
    server = DIALECTS["openai"].server
    documents = DocumentParser(MAX_VALUES, allows_vectors=family.has_vectors)
    if _can_send_unchanged(metadata, call):
        docs = [documents.read(line) for line in lines]
        return _make_unchanged_frames(family, docs, lines, metadata)
    if options.whole:
        reader = FamilyFrameReader(family, options, server, documents, limit=MAX_VALUES)
        return tuple(reader.read(lines[0]))
    sequencer = Sequencer() if options.is_translated and FAMILIES[client].has_part_events else None
    stream = FamilyFrameReader(family, options, server, documents, sequencer=sequencer)
    frames = [frame for line in (*lines, sse.DONE) for frame in stream.read(line)]
    return tuple(frames) if frames and frames[-1].last else ()


def _can_send_unchanged(metadata: AnswerMetadata, call: Call) -> bool:
    """Return True if the client gets the stored documents unchanged, without parsed events."""
    return (
        metadata.streamed == call.stream
        and metadata.family == find_client_family(call)
        and call.head.endpoint not in ECHOING_ENDPOINTS
        and DIALECTS[call.head.dialect].client.add_guard_results is None
    )


def _make_unchanged_frames(
    family: Family, docs: Sequence[Json], lines: Sequence[bytes], metadata: AnswerMetadata
) -> tuple[Frame, ...]:
    """Return documents as frames of which only the last has an event."""
    name = family.name
    if not metadata.streamed and type(docs[0].get(family.result_list)) is not list:
        return ()
    sizes = [len(line) if len(line) > LARGE_BYTES else 0 for line in lines]
    parts = zip(docs, lines, sizes, strict=True)
    frames = [Frame((), name, doc=doc, raw=line, size=size) for doc, line, size in parts]
    if metadata.streamed and family.sends_done:
        frames.append(Frame((RESPONSE_END,), name, last=True))
    else:
        frames[-1] = frames[-1]._replace(events=(RESPONSE_END,), last=True)
    return tuple(frames)


def _parse_metadata(value: Any) -> AnswerMetadata:
    """Raise ``ValueError`` or ``TypeError`` for invalid metadata."""
    ended_at, streamed, upstream, model, counts, family = value
    if any(type(count) is not int or not 0 <= count <= MAX_TOKENS for count in counts.values()):
        raise ValueError("a token count is negative or too large")
    return AnswerMetadata(
        ended_at=float(ended_at),
        streamed=bool(streamed),
        upstream=str(upstream),
        model=str(model),
        tokens=Tokens(**counts),
        family=family,
    )


class DecodedAnswers:
    """Recently decoded responses: at most ``MAX_DECODED_ANSWERS``, each of ``MAX_DECODED_BYTES``.

    The store stays authoritative: an entry is used only for the exact value that the store
    returned.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, tuple[bytes, CachedAnswer]] = OrderedDict()

    def find(self, decoding_key: Hashable, value: bytes) -> CachedAnswer | None:
        """Return the response decoded from a stored value, or None.

        ``decoding_key`` has the cache key and the options that decoding depends on.
        """
        stored, answer = self._answers.get(decoding_key, (None, None))
        if answer is None or stored != value:
            return None
        self._answers.move_to_end(decoding_key)
        return answer

    def add(self, decoding_key: Hashable, value: bytes, answer: CachedAnswer) -> None:
        if answer.size <= MAX_DECODED_BYTES:
            self._answers[decoding_key] = value, answer
            self._answers.move_to_end(decoding_key)
            if len(self._answers) > MAX_DECODED_ANSWERS:
                self._answers.popitem(last=False)


def replace_echoed_user_fields(frame: Frame, call: Call) -> Frame:
    """Return a frame in which a Responses API response repeats the user fields of ``call``.

    The cache key ignores these fields, so the cached response may contain those of another user.
    """
    doc = frame.doc
    if frame.family != "responses" or doc is None:
        return frame
    if isinstance(doc.get("response"), dict):
        doc = {**doc, "response": doc["response"] | _get_echoed_user_fields(call)}
    elif doc.get("object") == "response":
        doc = doc | _get_echoed_user_fields(call)
    else:
        return frame
    return frame._replace(doc=doc, raw=None)


def _get_echoed_user_fields(call: Call) -> Json:
    return {name: call.body.get(name, ECHOED_MEMBERS[name]) for name in _ECHOED_CALLER}
