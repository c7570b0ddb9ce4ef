"""Answers that are one document without parts: embeddings, token counts, lists, stored objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from proxy.dialects.chat.writer import ChatWholeWriter
from proxy.dialects.family import Family, ReadOptions
from proxy.dialects.findings import DETECTIONS, HOOKS
from proxy.errors import UpstreamInvalid
from proxy.money.usage import read_usage
from proxy.types import Json
from proxy.types.events import STOP, Event, Extension, FamilyName, Frame, Native, Start, UsageReport

COUNT: Final = "input_tokens"
"""The member of a token count."""


class Content(NamedTuple):
    """Facts about a document for the meter. `quarters` is the estimated output in 1/4 tokens."""

    usage: UsageReport | None = None
    quarters: int | None = None


ReadContent = Callable[[Json, ReadOptions], Content]
"""Reads a document. Raises `UpstreamInvalid` for one of another kind."""


def document_frame(
    doc: Json,
    raw: bytes | None = None,
    content: Content = Content(),  # noqa: B008  # immutable
    family: FamilyName = "document",
    model_call: int = 0,
) -> Frame:
    """Return the only frame of an answer."""
    model = doc.get("model")
    events: list[Event] = [Start(None, model if type(model) is str else None, None)]
    events += [Extension(name, doc[name]) for name in (DETECTIONS, HOOKS) if name in doc]
    if content.usage is not None:
        events.append(content.usage)
    return Frame(
        events=(*events, Native(), STOP),
        family=family,
        doc=doc,
        raw=raw,
        model_call=model_call,
        last=True,
        quarters=content.quarters,
    )


class DocumentReader:
    """Reads one document."""

    def __init__(self, options: ReadOptions, family: FamilyName, read_content: ReadContent) -> None:
        self._options = options
        self._family = family
        self._read_content = read_content

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        content = self._read_content(doc, self._options)
        return (document_frame(doc, raw, content, self._family, self._options.model_call),)

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        raise UpstreamInvalid("The upstream sent no document.")


def _embeddings(doc: Json, options: ReadOptions) -> Content:
    usage = doc.get("usage")
    if usage is None:
        return Content()
    return Content(UsageReport(read_usage(usage), usage if type(usage) is dict else {}))


def _document(doc: Json, options: ReadOptions) -> Content:
    if options.call.head.endpoint == "count_tokens" and type(doc.get(COUNT)) is not int:
        raise UpstreamInvalid(f"The upstream's response lacks the field {COUNT}.")
    return Content()


EMBEDDINGS: Final = Family(
    name="embeddings",
    reader=partial(DocumentReader, family="embeddings", read_content=_embeddings),
    writer=partial(ChatWholeWriter, family="embeddings"),
    marks_parts=False,
    answers="data",
    has_vectors=True,
)
DOCUMENT: Final = Family(
    name="document",
    reader=partial(DocumentReader, family="document", read_content=_document),
    writer=partial(ChatWholeWriter, family="document"),
    marks_parts=False,
)
