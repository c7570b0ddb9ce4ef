"""What becomes of each request field on its way to an upstream of another dialect.

A field is *passed* when the upstream's dialect knows it, or when neither side does; *mapped* when
it has another name or form there; *dropped* with a warning when it only tunes the answer; and
*refused* when the answer would not be what was asked for. The tables in ``docs/dialects.md`` are
made by asking this module.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.dialects import hub
from proxy.dialects.base import Dialect
from proxy.dialects.fields import Field
from proxy.errors import BadField
from proxy.types import Endpoint, Json

REFUSED = frozenset(
    {
        "audio",
        "echo",
        "function_call",
        "functions",
        "guided_choice",
        "guided_grammar",
        "guided_json",
        "guided_regex",
        "images",
        "modalities",
        "n",
        "response_format",
        "suffix",
        "tool_choice",
        "tools",
        "web_search_options",
    }
)
"""Fields that shape the answer: without them it would not be what the client asked for."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A body as an upstream can take it, and the names of the fields it had to leave behind."""

    body: Json
    dropped: tuple[str, ...]


def fit(
    asked: Dialect,
    upstream: Dialect,
    ways: tuple[Endpoint, Endpoint],
    body: Json,
    accepts: frozenset[str] = frozenset(),
) -> Fitted:
    """Put a body in OpenAI's form into an upstream's.

    ``ways`` are the client's endpoint and the target's; ``accepts`` are fields that this very
    upstream takes beyond its dialect. Raises ``BadField`` when the upstream cannot express what
    was asked, or not within its own range.
    """
    came, goes = ways
    known_there = upstream.fields.get(goes)
    if known_there is None:
        raise BadField("model", f"is served by an upstream that has no {goes} endpoint")
    body = upstream.server.from_hub(goes, _turned(came, goes, body))
    known_here = asked.fields.get(came, {})
    kept: Json = {}
    dropped: list[str] = []
    for name, value in body.items():
        field = known_there.get(name)
        if field is not None:
            _within_range(name, field, value)
            kept[name] = value
        elif name in accepts or name not in known_here:
            kept[name] = value
        elif value is not None and value != known_here[name].default:
            dropped.append(_left_behind(name))
    return Fitted(kept, tuple(dropped))


def _turned(came: Endpoint, goes: Endpoint, body: Json) -> Json:
    if came == "completions" and goes == "chat":
        return hub.chat_request(body)
    if came == "chat" and goes == "completions":
        return hub.legacy_request(body)
    return body


def _within_range(name: str, field: Field, value: object) -> None:
    problem = None if value is None else field.check(value)
    if problem is not None:
        raise BadField(name, f"{problem} for the upstream of this model")


def _left_behind(name: str) -> str:
    if name in REFUSED:
        raise BadField(name, "cannot be expressed to the upstream of this model")
    return name
