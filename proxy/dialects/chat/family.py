"""The families of chat completions and of legacy completions."""

from __future__ import annotations

from typing import Final

from proxy.dialects.chat.conversion import to_chat, to_completions
from proxy.dialects.chat.reader import ChatReader
from proxy.dialects.chat.tables import CHAT as CHAT_FORM
from proxy.dialects.chat.tables import COMPLETIONS as COMPLETIONS_FORM
from proxy.dialects.chat.tables import WHOLE_CHAT
from proxy.dialects.chat.writer import ChatStreamWriter, ChatWholeWriter
from proxy.dialects.family import Family, FamilyReader, FamilyWriter, ReadOptions, WriteOptions


def _chat_reader(options: ReadOptions) -> FamilyReader:
    is_whole = options.whole and not options.stream
    return ChatReader(options, WHOLE_CHAT if is_whole else CHAT_FORM)


def _chat_writer(options: WriteOptions) -> FamilyWriter:
    writer = ChatWholeWriter if options.whole else ChatStreamWriter
    return writer(options, "chat", to_chat)


def _completions_reader(options: ReadOptions) -> FamilyReader:
    return ChatReader(options, COMPLETIONS_FORM)


def _completions_writer(options: WriteOptions) -> FamilyWriter:
    writer = ChatWholeWriter if options.whole else ChatStreamWriter
    return writer(options, "completions", to_completions)


CHAT: Final = Family(
    name="chat",
    reader=_chat_reader,
    writer=_chat_writer,
    marks_parts=False,
    answers="choices",
    done=True,
)
COMPLETIONS: Final = Family(
    name="completions",
    reader=_completions_reader,
    writer=_completions_writer,
    marks_parts=False,
    answers="choices",
    done=True,
)
