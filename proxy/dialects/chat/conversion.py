"""Converts documents between chat completions and legacy completions."""

from __future__ import annotations

from proxy.dialects import DIALECTS
from proxy.dialects.chat.merging import choices_of, message_of
from proxy.dialects.chat.writer import Converter
from proxy.dialects.content_parts import joined_message
from proxy.dialects.family import WriteOptions
from proxy.dialects.logprobs import LegacyLogprobs, Lengths, chat_form, legacy_form
from proxy.types import Json
from proxy.types.events import FamilyName
from proxy.types.index import index_of


def to_chat(options: WriteOptions, family: FamilyName) -> Converter | None:
    """Return what makes documents of a family those of chat."""
    if family != "completions":
        return None
    return LegacyToChat(streamed=not options.whole).feed


def to_completions(options: WriteOptions, family: FamilyName) -> Converter | None:
    """Return what makes documents of a family those of legacy completions."""
    if family == "chat":
        return ChatToLegacy().feed
    call = options.call
    takes_any = options.complete or DIALECTS[call.head.dialect].client.reads_any_logprobs
    has_logprobs = call.body.get("logprobs") is not None
    return LegacyLogprobs().feed if has_logprobs and not takes_any else None


class ChatToLegacy:
    """Converts chat answers, whole or chunk by chunk, to legacy completions.

    Tool calls, refusal and reasoning of a message become members of the choice.
    """

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths = Lengths()

    def feed(self, data: Json) -> Json | None:
        """Return a document as legacy completions, None for a chunk without a text there."""
        choices = [self._choice(choice) for choice in choices_of(data)]
        empty = all(not c["text"] and c["finish_reason"] is None and len(c) == 4 for c in choices)
        if choices and empty and not data.get("usage"):
            return None
        return {**data, "object": "text_completion", "choices": choices}

    def _choice(self, choice: Json) -> Json:
        message = joined_message(message_of(choice))
        beside = {k: v for k, v in message.items() if k not in ("role", "content") and v}
        text = message.get("content") or ""
        begin = self._lengths.pass_by(choice, text)
        return {
            "index": choice.get("index", 0),
            "text": text,
            "logprobs": legacy_form(choice.get("logprobs"), begin),
            "finish_reason": choice.get("finish_reason"),
            **beside,
        }


class LegacyToChat:
    """Converts legacy answers, whole or chunk by chunk, to chat. The first chunk of a choice has
    the role."""

    __slots__ = ("_opened", "_streamed")

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self._opened: set[int] = set()

    def feed(self, data: Json) -> Json | None:
        kind = "chat.completion.chunk" if self._streamed else "chat.completion"
        return {**data, "object": kind, "choices": [self._choice(c) for c in choices_of(data)]}

    def _choice(self, choice: Json) -> Json:
        index = choice.get("index", 0)
        place = index_of(choice, 0)
        message: Json = {"content": choice.get("text") or ""}
        if not self._streamed or place not in self._opened:
            self._opened.add(place)
            message = {"role": "assistant", **message}
        return {
            "index": index,
            ("delta" if self._streamed else "message"): message,
            "logprobs": chat_form(choice.get("logprobs")),
            "finish_reason": choice.get("finish_reason"),
        }
