"""OpenAI Responses as an API family."""

from __future__ import annotations

from functools import partial

from proxy.dialects.document import Content, DocumentReader, document_writer
from proxy.dialects.family import Family, FamilyReader, ReadOptions, RequestForm
from proxy.dialects.responses import from_chat
from proxy.dialects.responses.failures import failure_of
from proxy.dialects.responses.reader import ResponsesReader
from proxy.dialects.responses.to_chat import chat_of
from proxy.dialects.responses.whole import WholeResponseReader
from proxy.dialects.responses.writer import ResponsesWriter
from proxy.types import Json


def reader(options: ReadOptions) -> FamilyReader:
    return WholeResponseReader(options) if options.whole else ResponsesReader(options)


RESPONSES = Family(
    name="responses",
    reader=reader,
    writer=ResponsesWriter,
    marks_parts=True,
    answers="output",
    failure=failure_of,
    request=RequestForm(to_chat=chat_of, from_chat=from_chat.responses_of, tidy=from_chat.tidy),
)


def _stored(doc: Json, options: ReadOptions) -> Content:
    if options.call.head.endpoint == "conversations":
        from proxy.dialects.responses import conversations  # noqa: PLC0415  # few calls

        return conversations.check_document(doc, options.call.head)
    from proxy.dialects.responses import stored  # noqa: PLC0415  # few calls

    return stored.read_stored(doc, options.call.head)


STORED = Family(
    name="stored",
    reader=partial(DocumentReader, family="stored", read_content=_stored),
    writer=partial(document_writer, family="stored"),
    marks_parts=False,
    failure=lambda doc: None,
)
"""Objects of the Responses API that a provider stores. The error in one is not that of a call."""
