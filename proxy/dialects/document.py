"""Responses that are one document without parts, and bytes that pass through unread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from proxy.dialects.family import ReadOptions
from proxy.dialects.findings import make_finding_events
from proxy.dialects.wire.strict_json import as_object, dump
from proxy.errors import UpstreamInvalid
from proxy.money.usage import read_chat_usage
from proxy.types import Json
from proxy.types.events import (
    RESPONSE_END,
    Event,
    FamilyName,
    Frame,
    ResponseStart,
    Unmapped,
    UsageReport,
)

COUNT_MEMBER: Final = "input_tokens"
"""The member of a token count."""
NON_OBJECT_MEMBER = ""
"""The member that holds JSON that is not an object, so that guards read it."""


class DocumentUsage(NamedTuple):
    """Usage in a document, for the meter.

    ``output_token_quarters`` is an estimate in quarters of a token, if the document has no count.
    """

    report: UsageReport | None = None
    output_token_quarters: int | None = None


ReadDocumentUsage = Callable[[Json, ReadOptions], DocumentUsage]
"""Reads a document. Raises ``UpstreamInvalid`` for one of another kind."""


def read_chat_usage_report(doc: Json) -> UsageReport | None:
    """Return the usage of a document in the format of chat, None if it reports none."""
    usage = doc.get("usage")
    return None if usage is None else UsageReport(read_chat_usage(usage), as_object(usage))


def make_document_frame(
    doc: Json,
    raw: bytes | None = None,
    usage: DocumentUsage = DocumentUsage(),  # noqa: B008  # immutable
    family: FamilyName = "document",
    model_call: int = 0,
) -> Frame:
    """Return the only frame of a whole response."""
    model = doc.get("model")
    events: list[Event] = [ResponseStart(None, model if type(model) is str else None, None)]
    events += make_finding_events(doc)
    if usage.report is not None:
        events.append(usage.report)
    return Frame(
        events=(*events, Unmapped(), RESPONSE_END),
        family=family,
        doc=doc,
        raw=raw,
        model_call=model_call,
        last=True,
        quarters=usage.output_token_quarters,
    )


class DocumentReader:
    """Reads a response that is one document."""

    def __init__(
        self, options: ReadOptions, family: FamilyName, read_usage: ReadDocumentUsage
    ) -> None:
        self._options = options
        self._family = family
        self._read_usage = read_usage

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        usage = self._read_usage(doc, self._options)
        return (make_document_frame(doc, raw, usage, self._family, self._options.model_call),)

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        raise UpstreamInvalid("The upstream's response has no JSON document.")


class PassthroughWriter:
    """Writes a passthrough response: its bytes, or the document that guards changed."""

    def feed(self, frame: Frame) -> bytes:
        if frame.raw is not None:
            return frame.raw
        if frame.doc is None:
            return b""
        value: Any = frame.doc
        if list(value) == [NON_OBJECT_MEMBER]:
            value = value[NON_OBJECT_MEMBER]
        return dump(value, frame.size)

    def encode_error(self, document: bytes) -> bytes:
        return b""
