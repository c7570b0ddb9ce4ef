"""The API family of Anthropic's Messages."""

from __future__ import annotations

from proxy.dialects.family import Family, RequestForm
from proxy.dialects.messages import from_chat
from proxy.dialects.messages.reader import message_reader
from proxy.dialects.messages.to_chat import chat_of
from proxy.dialects.messages.writer import message_writer

MESSAGES = Family(
    name="messages",
    reader=message_reader,
    writer=message_writer,
    marks_parts=True,
    answers="content",
    request=RequestForm(
        to_chat=chat_of,
        from_chat=from_chat.messages_of,
        tidy=from_chat.tidy,
        lost=from_chat.lost_of,
        bound=from_chat.ANSWER_TOKENS,
    ),
)
