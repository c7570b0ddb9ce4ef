"""Anthropic's Messages as an API family."""

from __future__ import annotations

from proxy.dialects.family import (
    Family,
    FamilyReader,
    FamilyWriter,
    ReadOptions,
    RequestForm,
    WriteOptions,
)
from proxy.dialects.messages import from_chat
from proxy.dialects.messages.reader import MessageReader, WholeMessageReader
from proxy.dialects.messages.to_chat import convert_to_chat
from proxy.dialects.messages.writer import MessageWriter, WholeMessageWriter


def _reader(options: ReadOptions) -> FamilyReader:
    return WholeMessageReader(options) if options.whole else MessageReader(options)


def _writer(options: WriteOptions) -> FamilyWriter:
    return WholeMessageWriter() if options.whole else MessageWriter()


MESSAGES = Family(
    name="messages",
    reader=_reader,
    writer=_writer,
    marks_parts=True,
    answers="content",
    request=RequestForm(
        to_chat=convert_to_chat,
        from_chat=from_chat.convert_from_chat,
        tidy=from_chat.tidy,
        lost=from_chat.lost_fields,
        bound=from_chat.MAX_OUTPUT_TOKENS,
    ),
)
