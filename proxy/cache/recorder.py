"""Records a response for the cache, as documents of its API family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proxy.dialects.families import FAMILIES, find_client_family
from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.dialects.findings import has_upstream_finding
from proxy.dialects.wire import sse
from proxy.types import CacheRule, Call, Json, ResponseHead, events

_DATA_PREFIX = b"data: "


def count_requested_choices(call: Call, request_body: Json) -> int:
    """Return the number of choices or vectors that a request asks for."""
    if call.head.endpoint == "embeddings":
        return _count_texts(request_body.get("input"))
    n = request_body.get("n")
    choices = n if type(n) is int and n > 0 else 1
    return choices * _count_texts(request_body.get("prompt"))


def _count_texts(value: Any) -> int:
    """Return the number of texts. A list of numbers is one text in tokens."""
    return len(value) if isinstance(value, list) and value and not isinstance(value[0], int) else 1


@dataclass(slots=True)
class AnswerRecorder:
    """Collects the documents of a response while it is sent.

    ``expected_count`` is the number of choices or vectors of a complete response. ``family`` is the
    client's API family until a frame has another one.

    ``is_complete`` becomes True with the last frame of a response that may be cached. It stays
    False if the response is too large for the rule, has an error, or lacks a choice or its end. It
    also stays False if the upstream filtered or flagged the response, or if the rule excludes its
    tool calls.
    """

    rule: CacheRule
    expected_count: int
    family: events.FamilyName
    open_writer: Callable[[events.FamilyName], FamilyWriter]
    streamed: bool
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    is_oversize: bool = False
    is_flagged: bool = False
    is_complete: bool = False
    _writer: FamilyWriter | None = None
    _is_cacheable: bool = True
    _vectors: int = 0
    _started: set[int] = field(default_factory=set)
    _finished: set[int] = field(default_factory=set)

    def encode(self, frame: events.Frame) -> bytes:
        """Encode a frame in its API family. Takes long for a large frame."""
        if frame.doc is None and not frame.events:  # a keepalive
            return b""
        if self._writer is None:
            self.family = frame.family or self.family
            self._writer = self.open_writer(self.family)
        return self._writer.feed(frame)

    def feed(self, frame: events.Frame, encoded: bytes | None = None) -> None:
        """Record a frame. ``encoded`` is the result of ``encode`` if the caller has it already.

        The lines of a response that cannot be cached are dropped.
        """
        if not self.is_oversize:
            self._add(self.encode(frame) if encoded is None else encoded)
        for event in frame.events:
            if type(event) is not events.Delta:
                self._update_cacheability(event, frame)
        if not self._is_cacheable:
            self.lines.clear()
        if frame.last:
            has_all_choices = len(self._started) + self._vectors >= self.expected_count
            is_cacheable = self._is_cacheable and not self.is_flagged and has_all_choices
            self.is_complete = is_cacheable and self._started == self._finished

    def _add(self, encoded: bytes) -> None:
        for line in _read_sse_documents(encoded) if self.streamed else (encoded,) * bool(encoded):
            self.size += len(line) + 1
            self.lines.append(line)
        if self.size > self.rule.max_bytes:
            self.is_oversize, self._is_cacheable, self._writer = True, False, None

    def _update_cacheability(self, event: events.Event, frame: events.Frame) -> None:
        if type(event) is events.PartStart:
            self._started.add(event.part.choice)
            is_tool_call = event.part.kind in events.TOOL_CALL_KINDS
            self._is_cacheable &= not is_tool_call or self.rule.tool_calls
        elif type(event) is events.Finish:
            self._started.add(event.choice)
            self._finished.add(event.choice)
            self._is_cacheable &= event.reason != "content_filter" and event.native != "error"
            self._is_cacheable &= event.reason != "tool_calls" or self.rule.tool_calls
        elif type(event) is events.Extension:
            self.is_flagged = self.is_flagged or has_upstream_finding({event.name: event.value})
        elif type(event) is events.Unmapped:
            vectors = (frame.doc or {}).get("data")
            self._vectors += len(vectors) if isinstance(vectors, list) else 0
        elif type(event) is events.Fault:
            self._is_cacheable = False


def _read_sse_documents(encoded: bytes) -> list[bytes]:
    """Return the documents of server-sent events, without comments and the end marker."""
    events = [line for line in encoded.split(b"\n") if line.startswith(_DATA_PREFIX)]
    lines = [line.removeprefix(_DATA_PREFIX) for line in events]
    return [line for line in lines if line != sse.DONE]


def open_recorder(
    head: ResponseHead, call: Call, rule: CacheRule, expected_count: int
) -> AnswerRecorder:
    def open_writer(family: events.FamilyName) -> FamilyWriter:
        return FAMILIES[family].writer(WriteOptions(call, not head.streamed, complete=True))

    family, streamed = find_client_family(call), head.streamed
    return AnswerRecorder(
        rule, expected_count, family=family, open_writer=open_writer, streamed=streamed
    )
