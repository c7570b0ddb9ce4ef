"""The two forms of log-probabilities: legacy lists of tokens, and chat's list of contents.

Legacy completions have the first and chats the second, but Scale's servers and llama.cpp's put the
second into legacy completions as well. An upstream may write anything here: what has no form is
left as it is, or left out.
"""

from __future__ import annotations

from typing import Any

from proxy.types import Json
from proxy.types.index import index_of


def _items(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> list[str]:
    return [item if isinstance(item, str) else "" for item in value or ()]


def legacy_form(logprobs: Any, begin: int) -> Json | None:
    """Return chat's form as lists; the text of the choice was ``begin`` characters long before
    these tokens."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return None
    content = _items(content)
    tokens = _texts([item.get("token") for item in content])
    offsets, at = [], begin
    for token in tokens:
        offsets.append(at)
        at += len(token)
    tops = [_items(item.get("top_logprobs")) for item in content]
    return {
        "tokens": tokens,
        "token_logprobs": [item.get("logprob") for item in content],
        "top_logprobs": [
            {str(top.get("token")): top.get("logprob") for top in item} for item in tops
        ],
        "text_offset": offsets,
    }


def _spelled(token: Any, logprob: Any) -> Json:
    spelling = list(token.encode()) if isinstance(token, str) else None
    return {"token": token, "logprob": logprob, "bytes": spelling}


def chat_form(logprobs: Any) -> Any:
    """Return legacy lists as chat's form, which stays as it is."""
    if not isinstance(logprobs, dict) or "content" in logprobs:
        return logprobs
    tokens = _list(logprobs.get("tokens"))
    chosen = _list(logprobs.get("token_logprobs")) or [None] * len(tokens)
    tops = _list(logprobs.get("top_logprobs")) or [None] * len(tokens)
    return {
        "content": [
            _spelled(token, logprob) | {"top_logprobs": [_spelled(*item) for item in _pairs(top)]}
            for token, logprob, top in zip(tokens, chosen, tops, strict=False)
        ]
    }


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _pairs(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


class Lengths:
    """How many characters each choice of an answer has so far."""

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}

    def pass_by(self, choice: Json, text: Any) -> int:
        """Return where a text begins, and count it."""
        at = index_of(choice, 0)
        begin = self._lengths.get(at, 0)
        self._lengths[at] = begin + (len(text) if isinstance(text, str) else 0)
        return begin


class LegacyLogprobs:
    """Rewords the log-probabilities of legacy completions, whole or chunk by chunk, where they come
    in chat's form."""

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths = Lengths()

    def feed(self, data: Json) -> Json:
        """Return the very same document where there is nothing to reword."""
        choices = data.get("choices")
        if not isinstance(choices, list):
            return data
        reworded = [self._choice(item) if isinstance(item, dict) else item for item in choices]
        same = all(new is old for new, old in zip(reworded, choices, strict=True))
        return data if same else {**data, "choices": reworded}

    def _choice(self, choice: Json) -> Json:
        begin = self._lengths.pass_by(choice, choice.get("text"))
        lists = legacy_form(choice.get("logprobs"), begin)
        return choice if lists is None else {**choice, "logprobs": lists}
