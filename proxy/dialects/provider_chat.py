"""A chat as a provider takes it that speaks OpenAI's API and differs from OpenAI.

``proxy.types.providers`` says how they differ. Fields that a provider does not take are left to
``translation``.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

from proxy.dialects.content_parts import THOUGHTS
from proxy.errors import InvalidField
from proxy.types import Json
from proxy.types.providers import MAX_TOKENS, Provider

UNKNOWN_THOUGHT = " "
"""A thought that nobody sent back: providers that require one take it for any."""
SHORT_ID = re.compile("[A-Za-z0-9]{9}")
_REFUSED = THOUGHTS | {"annotations", "audio", "function_call", "refusal"}
_OF_CALLS = frozenset({"custom", "function", "id", "index", "type"})


def provider_chat(body: Json, traits: Provider) -> tuple[Json, tuple[str, ...]]:
    """Return a chat as a provider takes it, and the names of what is left out of its messages."""
    made, dropped = dict(body), set[str]()
    for renamed in traits.renamed:
        name, own = renamed
        value, known = made.pop(name, None), made.get(own)
        if known is not None and type(known) is not int:
            raise InvalidField(own, "must be an integer")
        if value is not None and (known is None or renamed == MAX_TOKENS):
            made[own] = value if known is None else min(value, known)
    messages = body.get("messages")
    if isinstance(messages, list):
        made["messages"] = [_message(each, traits, dropped) for each in messages]
    return made, tuple(sorted(dropped))


def _message(message: Any, traits: Provider, dropped: set[str]) -> Any:
    role = message.get("role") if isinstance(message, dict) else None
    if role == "developer" and traits.fields is not None:
        return {**message, "role": "system"}
    if role == "tool" and traits.has_short_ids:
        return _shortened(message, "tool_call_id")
    if role != "assistant":
        return message
    if traits.thoughts == "refused":
        dropped |= {name for name in _REFUSED & message.keys() if message[name]}
        message = {name: value for name, value in message.items() if name not in _REFUSED}
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return message
    if traits.thoughts == "required" and not message.get("reasoning_content"):
        thought = message.get("reasoning")
        message = {**message, "reasoning_content": thought or UNKNOWN_THOUGHT}
    return {**message, "tool_calls": [_call(call, traits) for call in calls]}


def _call(call: Any, traits: Provider) -> Any:
    if not isinstance(call, dict):
        return call
    if traits.thoughts == "refused" and not traits.signs_calls:
        call = {name: value for name, value in call.items() if name in _OF_CALLS}
    return _shortened(call, "id") if traits.has_short_ids else call


def _shortened(value: Json, name: str) -> Json:
    """Return an object whose id has nine letters and digits, always the same for one id."""
    own = value.get(name)
    if not isinstance(own, str) or SHORT_ID.fullmatch(own):
        return value
    short = blake2b(own.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()[:9]
    return {**value, name: short}
