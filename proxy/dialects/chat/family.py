"""The families of chat completions and of legacy completions."""

from __future__ import annotations

from functools import partial
from typing import Final

from proxy.dialects.chat import tables
from proxy.dialects.chat.reader import ChatReader
from proxy.dialects.chat.writer import chat_writer
from proxy.dialects.family import Family

CHAT: Final = Family(
    name="chat",
    reader=partial(ChatReader, form=tables.CHAT),
    writer=partial(chat_writer, family="chat"),
    marks_parts=False,
    answers="choices",
    answers_prevail=True,
    done=True,
)
COMPLETIONS: Final = Family(
    name="completions",
    reader=partial(ChatReader, form=tables.COMPLETIONS),
    writer=partial(chat_writer, family="completions"),
    marks_parts=False,
    answers="choices",
    answers_prevail=True,
    done=True,
)
