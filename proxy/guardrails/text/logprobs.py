"""What log probabilities say that the text beside them does not.

Their tokens are looked for in the known places of both forms; the bytes of a token are read where
they do not spell it; and whatever else stands there, names as well as values, is text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_LISTS = ("tokens", "content", "refusal")
_PLACES: Mapping[str, type] = dict.fromkeys(
    (*_LISTS, "top_logprobs", "token_logprobs", "text_offset"), list
)
_OF_TOKEN: Mapping[str, type] = {
    "token": str,
    "logprob": float,
    "bytes": list,
    "top_logprobs": list,
}
_NUMBERS = frozenset({"bytes", "token_logprobs", "text_offset"})


def beside(logprobs: Any, shown: Any) -> list[str]:
    """Return what is said there beside the text that is shown; empty where that is nothing."""
    chosen, others = _spelled(logprobs)
    from_bytes, raw = _bytes_of(logprobs, chosen)
    new = [] if raw in (chosen, shown) else [raw]
    return [*([] if chosen == shown else [chosen]), *new, *others, *from_bytes, *_strange(logprobs)]


def _spelled(logprobs: Any) -> tuple[str, list[str]]:
    """Return what the chosen tokens spell, and every token that was not chosen, in either form."""
    chosen = [_text(_token(each)) for each in _chosen(logprobs)]
    others = [_text(_token(each)) for each in _others(logprobs)]
    known = set(chosen)
    return "".join(chosen), [each for each in dict.fromkeys(others) if each not in known]


def _chosen(logprobs: Any) -> Iterator[Any]:
    for part in _LISTS:
        yield from _list(_get(logprobs, part))


def _others(logprobs: Any) -> Iterator[Any]:
    for each in _chosen(logprobs):
        yield from _list(_get(each, "top_logprobs"))
    for tops in _list(_get(logprobs, "top_logprobs")):
        yield from tops if isinstance(tops, dict | list) else (tops,)


def _bytes_of(logprobs: Any, chosen: str) -> tuple[list[str], str]:
    """Return what the bytes of tokens say that were not chosen, and what those of the chosen spell
    together: one character may be of several tokens. A token without bytes is its own."""
    runs = [(_token(each), _bytes(_get(each, "bytes"))) for each in _chosen(logprobs)]
    if all(run is None for _, run in runs):
        together = chosen
    else:
        parts = (_encoded(_text(token)) if run is None else run for token, run in runs)
        together = b"".join(parts).decode("utf-8", "replace")
    others = []
    for each in _others(logprobs):
        run = _bytes(_get(each, "bytes"))
        if run is not None and run != _encoded(_text(_token(each))):
            others.append(run.decode("utf-8", "replace"))
    return others, together


def _strange(logprobs: Any) -> Iterator[str]:
    """Return every name and every string outside of the known places of tokens."""
    tops = _list(_get(logprobs, "top_logprobs"))
    stack: list[Any] = [
        *([logprobs] if isinstance(logprobs, str) else _rest(logprobs, _PLACES)),
        *(value for top in tops if isinstance(top, dict) for value in top.values()),
    ]
    for each in (*_chosen(logprobs), *_others(logprobs)):
        stack += _rest(each, _OF_TOKEN)
    while stack:  # no recursion: an upstream chooses how deep this is
        value = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            stack += (*value.keys(), *value.values())
        elif isinstance(value, list):
            stack += value


def _rest(value: Any, known: Mapping[str, type]) -> list[Any]:
    """Return what of a value is not at its known place, or is not what it has to be there."""
    if not isinstance(value, dict):
        return [] if isinstance(value, str) else [value]  # a token is looked at as one
    rest: list[Any] = []
    for name, each in value.items():
        if name not in known:
            rest += (name, each)
        elif not isinstance(each, known[name]):
            rest.append(each)
        elif name in _NUMBERS and isinstance(each, list):
            rest += (step for step in each if not isinstance(step, int | float))
    return rest


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _token(each: Any) -> Any:
    return each.get("token") if isinstance(each, dict) else each


def _text(token: Any) -> str:
    return token if isinstance(token, str) else ""


def _encoded(token: str) -> bytes:
    return token.encode("utf-8", "surrogatepass")


def _bytes(value: Any) -> bytes | None:
    if not isinstance(value, list):
        return None
    return bytes(step for step in value if isinstance(step, int) and 0 <= step < 256)
