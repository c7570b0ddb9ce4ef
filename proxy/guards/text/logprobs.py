"""Texts of log probabilities that the text of the choice does not contain.

Both forms of OpenAI are known: `content` of chat, and `tokens` of completions. The bytes of a token
are read if they do not spell it. All other strings are texts, names of members included.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

_LISTS = ("tokens", "content", "refusal")
_NAMES = frozenset(
    {*_LISTS, "bytes", "logprob", "text_offset", "token", "token_logprobs", "top_logprobs"}
)


def beside(logprobs: Any, shown: Any) -> list[str]:
    """Return the texts of log probabilities that the text ``shown`` does not contain."""
    lists = [logprobs.get(name) for name in _LISTS] if isinstance(logprobs, dict) else []
    chosen = [item for items in lists if isinstance(items, list) for item in items]
    tokens = [_token(each) for each in chosen]
    spelled = raw = "".join(tokens)
    runs = [_bytes(each) for each in chosen]
    if any(run is not None for run in runs):  # a character may be split over several tokens
        raw = b"".join(
            token.encode("utf-8", "surrogatepass") if run is None else run
            for token, run in zip(tokens, runs, strict=True)
        ).decode("utf-8", "replace")
    others = _others(logprobs, set(tokens), set(map(id, chosen)))
    return [
        *dict.fromkeys(text for text in (spelled, raw) if text != shown),
        *dict.fromkeys(others),
    ]


def _others(logprobs: Any, tokens: Set[str], chosen: Set[int]) -> Iterator[str]:
    """Yield all strings but the chosen ``tokens``, and the bytes of tokens that were not chosen."""
    stack: list[Any] = [logprobs]
    while stack:  # no recursion: an upstream chooses the depth
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, dict):
            run = None if id(value) in chosen else _bytes(value)
            if run is not None and run != _token(value).encode("utf-8", "surrogatepass"):
                yield run.decode("utf-8", "replace")
            stack += _members(value, tokens)


def _members(value: dict[str, Any], tokens: Set[str]) -> Iterator[Any]:
    for name, each in value.items():
        is_token = isinstance(each, int | float) and name != "logprob"
        if name not in tokens if is_token else name not in _NAMES:
            yield name
        if name == "tokens" and isinstance(each, list):
            yield from (step for step in each if not isinstance(step, str))
        elif not (name == "token" and isinstance(each, str) and each in tokens):
            yield each


def _token(each: Any) -> str:
    token = each.get("token") if isinstance(each, dict) else each
    return token if isinstance(token, str) else ""


def _bytes(each: Any) -> bytes | None:
    steps = each.get("bytes") if isinstance(each, dict) else None
    if not isinstance(steps, list):
        return None
    return bytes(step for step in steps if isinstance(step, int) and 0 <= step < 256)
