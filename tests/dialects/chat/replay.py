"""Recorded streams read into frames, and written again, without a proxy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from proxy.dialects.families import FAMILIES
from proxy.dialects.family import ReadOptions, WriteOptions
from proxy.dialects.frames.reader import SurrogateJoiner
from proxy.dialects.wire import sse
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.errors import UpstreamInvalid
from proxy.types import Call, RequestHead
from proxy.types.events import FamilyName, Frame
from tests.checked import checked
from tests.doubles import Json


def call_for(
    family: FamilyName = "chat", dialect: str = "openai", *, wants_usage: bool = True, **body: Any
) -> Call:
    endpoint = "completions" if family == "completions" else "chat"
    head = RequestHead(dialect, endpoint, "/", "req_1")  # type: ignore[arg-type]
    return Call(head, body, requested_models=("m",), stream=True, wants_usage=wants_usage)


def for_messages() -> Call:
    head = RequestHead("anthropic", "chat", "/", "req_1")
    return Call(head, {}, requested_models=("m",), stream=True)


def documents(raw: bytes, cuts: Iterable[int] = ()) -> list[bytes]:
    """Return the data of the events of a stream whose bytes are cut at these positions."""
    reader = sse.EventReader(1 << 20)
    ends = [*cuts, len(raw)]
    pieces = [raw[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    read = [bytes(data) for piece in pieces for data in reader.feed(piece)]
    return [*read, *map(bytes, reader.close())]


def read_documents(
    family: FamilyName, docs: Sequence[bytes | Json], **options: Any
) -> tuple[list[Frame], str]:
    """Return the frames of documents, with their order checked, and the error at the end if any."""
    is_translated = options.get("is_translated")
    call = options.pop("call", None) or (for_messages() if is_translated else call_for(family))
    reader = FAMILIES[family].reader(ReadOptions(call, **options))
    joiner = SurrogateJoiner()
    frames: list[Frame] = []
    error = ""
    for data in docs:
        if data == sse.DONE:
            frames += reader.end(has_done_marker=True)
            break
        raw = data if isinstance(data, bytes) else orjson.dumps(data)
        doc = _parsed(raw)
        if doc is None or "error" in doc:
            error = "reported"
            break
        frames += map(joiner.feed, reader.read(doc, raw))
    else:
        try:
            frames += reader.end()
        except UpstreamInvalid as failure:
            error = failure.message
    split = bool(options.get("inspect") or options.get("is_translated"))
    checked(frames, split=split)
    if not error:
        frames[-1] = frames[-1]._replace(last=True)
    return frames, error


def _parsed(raw: bytes) -> Json | None:
    """Return a document, or None for one that frame readers refuse."""
    halves = DocumentParser().read_with_surrogates(raw)
    try:
        return halves or DocumentParser().read(raw)
    except UpstreamInvalid:
        return None


def written(
    family: FamilyName, frames: Iterable[Frame], call: Call | None = None, *, is_whole: bool = False
) -> bytes:
    """Return the bytes for a client."""
    options = WriteOptions(call or call_for(family), is_whole)
    writer = FAMILIES[family].writer(options)
    return b"".join([writer.feed(frame) for frame in frames])
