"""Recorder of a response for the cache, as documents of its API family."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from proxy.dialects.families import FAMILIES, client_family
from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.dialects.findings import is_flagged
from proxy.dialects.wire import sse
from proxy.dialects.writing import nobody
from proxy.types import CacheRule, Call, Json, ResponseHead
from proxy.types.events import (
    CALLS,
    Begin,
    Delta,
    Event,
    Extension,
    FamilyName,
    Fault,
    Finish,
    Frame,
    Native,
)

_DATA = b"data: "


def choices_wanted(call: Call, body: Json) -> int:
    """Return the number of choices or vectors that a request body asks for."""
    if call.head.endpoint == "embeddings":
        return _texts(body.get("input"))
    n = body.get("n")
    choices = n if type(n) is int and n > 0 else 1
    return choices * _texts(body["prompt"]) if "prompt" in body else choices


def _texts(value: Any) -> int:
    """Return the number of texts. A list of numbers is one text in tokens."""
    return len(value) if isinstance(value, list) and value and not isinstance(value[0], int) else 1


class AnswerRecorder:
    """Collects the documents of a response while it is sent.

    ``expected`` is the number of choices or vectors of a complete response. ``family`` is the
    client's until a frame has another one. After the last frame ``whole`` is True unless the
    response is larger than the rule allows, has an error, was filtered, was ``flagged`` by the
    upstream, lacks a choice or its end, or calls a tool and the rule excludes tool calls.
    """

    __slots__ = (
        *("_began", "_expected", "_finished", "_good", "_open_writer", "_rule", "_streamed"),
        *("_vectors", "_writer", "family", "flagged", "lines", "oversize", "size", "whole"),
    )

    def __init__(
        self,
        rule: CacheRule,
        expected: int,
        family: FamilyName,
        open_writer: Callable[[FamilyName], FamilyWriter],
        *,
        streamed: bool,
    ) -> None:
        self._rule = rule
        self._expected = expected
        self._open_writer = open_writer
        self._streamed = streamed
        self._writer: FamilyWriter | None = None
        self._good = True
        self._vectors = 0
        self._began: set[int] = set()
        self._finished: set[int] = set()
        self.family = family
        self.lines: list[bytes] = []
        self.size = 0
        self.oversize = False
        self.flagged = False
        self.whole = False

    def write(self, frame: Frame) -> bytes:
        """Encode a frame in its API family. Takes long for a large frame."""
        if frame.doc is None and not frame.events:  # a keep-alive
            return b""
        if self._writer is None:
            self.family = frame.family or self.family
            self._writer = self._open_writer(self.family)
        return self._writer.feed(frame)

    def feed(self, frame: Frame, written: bytes | None = None) -> None:
        """Record a frame, which ``write`` may have encoded as ``written``. An oversize response
        is not held."""
        if not self.oversize:
            self._add(self.write(frame) if written is None else written)
        for event in frame.events:
            if type(event) is not Delta:
                self._judge(event, frame)
        if not self._good:
            self.lines.clear()
        if frame.last:
            enough = len(self._began) + self._vectors >= self._expected
            good = self._good and not self.flagged and enough
            self.whole = good and self._began == self._finished

    def _add(self, written: bytes) -> None:
        for line in _documents(written) if self._streamed else (written,) * bool(written):
            self.size += len(line) + 1
            self.lines.append(line)
        if self.size > self._rule.max_bytes:
            self.oversize, self._good, self._writer = True, False, None

    def _judge(self, event: Event, frame: Frame) -> None:
        match event:
            case Begin(part):
                self._began.add(part.choice)
                self._good &= part.kind not in CALLS or self._rule.tool_calls
            case Finish(choice, reason, native):
                self._began.add(choice)
                self._finished.add(choice)
                self._good &= reason != "content_filter" and native != "error"
                self._good &= reason != "tool_calls" or self._rule.tool_calls
            case Extension(name, value):
                self.flagged = self.flagged or is_flagged({name: value})
            case Native() if frame.doc is not None and isinstance(frame.doc.get("data"), list):
                self._vectors += len(frame.doc["data"])
            case Fault():
                self._good = False
            case _:
                pass


def _documents(written: bytes) -> list[bytes]:
    """Return the documents of server-sent events, without comments and the end marker."""
    lines = [line[len(_DATA) :] for line in written.split(b"\n") if line.startswith(_DATA)]
    return [line for line in lines if line != sse.DONE]


def recorder_of(head: ResponseHead, call: Call, rule: CacheRule, expected: int) -> AnswerRecorder:
    """Return the recorder of a response to a call."""
    writer = partial(_native_writer, call, whole=not head.streamed)
    return AnswerRecorder(rule, expected, client_family(call), writer, streamed=head.streamed)


def _native_writer(call: Call, family: FamilyName, *, whole: bool) -> FamilyWriter:
    return FAMILIES[family].writer(WriteOptions(call, whole, nobody, complete=True))
