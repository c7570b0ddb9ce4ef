"""The API family of Anthropic's Messages."""

from __future__ import annotations

from proxy.dialects.family import Family
from proxy.dialects.messages.reader import message_reader
from proxy.dialects.messages.writer import message_writer

MESSAGES = Family(
    name="messages",
    reader=message_reader,
    writer=message_writer,
    marks_parts=True,
    answers="content",
)
