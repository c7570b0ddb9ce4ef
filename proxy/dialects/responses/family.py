"""OpenAI Responses as an API family."""

from __future__ import annotations

from proxy.dialects.family import Family, FamilyReader, ReadOptions, RequestForm
from proxy.dialects.responses import from_chat
from proxy.dialects.responses.failures import failure_of
from proxy.dialects.responses.reader import ResponsesReader
from proxy.dialects.responses.to_chat import chat_of
from proxy.dialects.responses.whole import WholeResponseReader
from proxy.dialects.responses.writer import ResponsesWriter


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
