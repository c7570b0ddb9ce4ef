"""Converts documents between chat completions and legacy completions."""

from __future__ import annotations

from proxy.dialects import DIALECTS
from proxy.dialects.chat.writer import Converter
from proxy.dialects.content_parts import joined_answer
from proxy.dialects.family import WriteOptions
from proxy.dialects.hub import ChatToLegacy, LegacyToChat
from proxy.dialects.logprobs import LegacyLogprobs
from proxy.types import Json
from proxy.types.events import FamilyName


def to_chat(options: WriteOptions, family: FamilyName) -> Converter | None:
    """Return what makes documents of a family those of chat."""
    if family != "completions":
        return None
    return LegacyToChat(streamed=not options.whole).feed


def to_completions(options: WriteOptions, family: FamilyName) -> Converter | None:
    """Return what makes documents of a family those of legacy completions."""
    if family == "chat":
        legacy = ChatToLegacy()

        def convert(document: Json) -> Json | None:
            return legacy.feed(joined_answer(document))

        return convert
    call = options.call
    takes_any = options.complete or DIALECTS[call.head.dialect].client.reads_any_logprobs
    has_logprobs = call.body.get("logprobs") is not None
    return LegacyLogprobs().feed if has_logprobs and not takes_any else None
