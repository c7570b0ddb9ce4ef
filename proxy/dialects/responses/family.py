"""OpenAI Responses as an API family."""

from __future__ import annotations

from functools import partial

from proxy.dialects.chat.writer import ChatWholeWriter
from proxy.dialects.document import Content, DocumentReader
from proxy.dialects.family import Family, FamilyReader, ReadOptions, RequestForm
from proxy.dialects.responses import from_chat
from proxy.dialects.responses.reader import ResponsesReader
from proxy.dialects.responses.schema import find_failure
from proxy.dialects.responses.to_chat import convert_to_chat
from proxy.dialects.responses.whole import WholeResponseReader
from proxy.dialects.responses.writer import ResponsesWriter
from proxy.types import Json


def _reader(options: ReadOptions) -> FamilyReader:
    return WholeResponseReader(options) if options.whole else ResponsesReader(options)


def _read_stored(doc: Json, options: ReadOptions) -> Content:
    from proxy.dialects.responses import stored  # noqa: PLC0415  # few calls

    return stored.read_stored(doc, options.call.head)


RESPONSES = Family(
    name="responses",
    reader=_reader,
    writer=ResponsesWriter,
    marks_parts=True,
    seals_ids=True,
    answers="output",
    failure=find_failure,
    request=RequestForm(
        to_chat=convert_to_chat, from_chat=from_chat.convert_from_chat, tidy=from_chat.tidy
    ),
)
STORED = Family(
    name="stored",
    reader=partial(DocumentReader, family="stored", read_content=_read_stored),
    writer=partial(ChatWholeWriter, family="stored"),
    marks_parts=False,
    seals_ids=True,
    failure=lambda doc: None,
)
"""Objects that a provider stores. An error in a stored response is not an error of the call."""
