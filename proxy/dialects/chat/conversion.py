"""Converts documents between chat completions and legacy completions, with their
log-probabilities.

Legacy completions have lists of tokens, chat has a list of objects. Scale's servers and llama.cpp
write chat's form into legacy completions too. An invalid form is kept or removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.dialects import DIALECTS
from proxy.dialects.chat.content_parts import joined_message
from proxy.dialects.chat.merging import choices_of, message_of
from proxy.dialects.family import WriteOptions
from proxy.types import Json
from proxy.types.events import FamilyName, index_of

Converter = Callable[[Json], Json | None]
"""Returns a document in the form of the client, None for a document to omit."""


def converter(options: WriteOptions, client: FamilyName, family: FamilyName) -> Converter | None:
    """Return the converter of documents of a family for a client, None if they stay as they are."""
    if client == "chat" and family == "completions":
        return LegacyToChat(streamed=not options.whole).feed
    if client != "completions":
        return None
    if family == "chat":
        return ChatToLegacy().feed
    call = options.call
    takes_any = options.complete or DIALECTS[call.head.dialect].client.reads_any_logprobs
    has_logprobs = call.body.get("logprobs") is not None
    return LegacyLogprobs().feed if has_logprobs and not takes_any else None


class _TextLengths(dict[int, int]):
    """Lengths of the texts so far, by the number of their choice."""

    def add(self, choice: Json, text: Any) -> int:
        """Add a text and return the position of its first character."""
        number = index_of(choice, 0)
        begin = self.get(number, 0)
        self[number] = begin + (len(text) if isinstance(text, str) else 0)
        return begin


class ChatToLegacy:
    """Converts chat responses, whole or chunk by chunk, to legacy completions.

    Tool calls, refusal and reasoning of a message become members of the choice.
    """

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths = _TextLengths()

    def feed(self, doc: Json) -> Json | None:
        """Return a document as legacy completions, None for a chunk without a text there."""
        choices: list[Json] = []
        for choice in choices_of(doc):
            message = joined_message(message_of(choice))
            text = message.get("content") or ""
            legacy = {
                "index": choice.get("index", 0),
                "text": text,
                "logprobs": legacy_form(choice.get("logprobs"), self._lengths.add(choice, text)),
                "finish_reason": choice.get("finish_reason"),
            }
            other_members = {k: v for k, v in message.items() if k not in ("role", "content") and v}
            choices.append({**legacy, **other_members})
        has_text = any(c["text"] or c["finish_reason"] is not None or len(c) > 4 for c in choices)
        if choices and not has_text and not doc.get("usage"):
            return None
        return {**doc, "object": "text_completion", "choices": choices}


class LegacyToChat:
    """Converts legacy responses, whole or chunk by chunk, to chat. The first chunk of a choice has
    the role."""

    __slots__ = ("_begun", "_streamed")

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self._begun: set[int] = set()

    def feed(self, doc: Json) -> Json:
        kind, holder = ("chat.completion.chunk", "delta") if self._streamed else (
            "chat.completion", "message")  # fmt: skip
        choices: list[Json] = []
        for choice in choices_of(doc):
            number = index_of(choice, 0)
            message: Json = {"content": choice.get("text") or ""}
            if not self._streamed or number not in self._begun:
                self._begun.add(number)
                message = {"role": "assistant", **message}
            choices.append(
                {
                    "index": choice.get("index", 0),
                    holder: message,
                    "logprobs": chat_form(choice.get("logprobs")),
                    "finish_reason": choice.get("finish_reason"),
                }
            )
        return {**doc, "object": kind, "choices": choices}


class LegacyLogprobs:
    """Converts log-probabilities in chat's form within legacy completions."""

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths = _TextLengths()

    def feed(self, doc: Json) -> Json:
        """Return a document, the same object if it has no log-probabilities in chat's form."""
        is_changed, choices = False, []
        for choice in doc["choices"] if isinstance(doc.get("choices"), list) else ():
            if isinstance(choice, dict):
                begin = self._lengths.add(choice, choice.get("text"))
                logprobs = legacy_form(choice.get("logprobs"), begin)
                if logprobs is not None:
                    is_changed, choice = True, {**choice, "logprobs": logprobs}  # noqa: PLW2901
            choices.append(choice)
        return {**doc, "choices": choices} if is_changed else doc


def legacy_form(logprobs: Any, begin: int) -> Json | None:
    """Return chat's form as lists, None for any other form. `begin` is the position of the first
    token in the text of the choice."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return None
    content = _objects(content)
    tokens = [item["token"] if isinstance(item.get("token"), str) else "" for item in content]
    offsets = []
    for token in tokens:
        offsets.append(begin)
        begin += len(token)
    return {
        "tokens": tokens,
        "token_logprobs": [item.get("logprob") for item in content],
        "top_logprobs": [
            {
                str(top.get("token")): top.get("logprob")
                for top in _objects(item.get("top_logprobs"))
            }
            for item in content
        ],
        "text_offset": offsets,
    }


def chat_form(logprobs: Any) -> Any:
    """Return legacy lists in chat's form. Any other value is unchanged."""
    if not isinstance(logprobs, dict) or "content" in logprobs:
        return logprobs
    tokens, chosen, tops = (
        value if isinstance(value := logprobs.get(name), list) else []
        for name in ("tokens", "token_logprobs", "top_logprobs")
    )
    empty = [None] * len(tokens)
    content: list[Json] = []
    for token, logprob, top in zip(tokens, chosen or empty, tops or empty, strict=False):
        alternatives = top.items() if isinstance(top, dict) else ()
        content.append(
            {**_token(token, logprob), "top_logprobs": [_token(*a) for a in alternatives]}
        )
    return {"content": content}


def _token(token: Any, logprob: Any) -> Json:
    spelling = list(token.encode()) if isinstance(token, str) else None
    return {"token": token, "logprob": logprob, "bytes": spelling}


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
