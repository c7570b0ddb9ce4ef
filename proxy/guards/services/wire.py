"""Requests to guard services, and strict parsing of their responses.

Each error is a failure of the guard, and only its class is logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter

from proxy.dialects.wire.strict_json import parse_rejecting_duplicates
from proxy.types.guard import GuardClient, ServiceText

MEANINGFUL_KINDS = frozenset({"arguments", "content", "prompt", "reasoning", "refusal", "suffix"})
"""Kinds of text that are judged by their meaning."""

REQUEST_HEADERS = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "headrace",
}


class NoAnswer(Exception):
    """The status of the response is not 200."""


class BadAnswer(Exception):
    """The response violates the contract."""


class TooLong(Exception):
    """The texts exceed the length limit."""


class Unsure(Exception):
    """The verdict is "unsure"."""


class ServiceAnswer(BaseModel):
    """JSON response with exact types. Unknown members are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class StrictAnswer(ServiceAnswer):
    """JSON response without unknown members."""

    model_config = ConfigDict(extra="forbid")


T = TypeVar("T")


def parse_answer(adapter: TypeAdapter[T], body: bytes | str) -> T:
    """Parse a response. Raises ``BadAnswer``."""
    raw = body.encode() if isinstance(body, str) else body
    try:
        parse_rejecting_duplicates(raw)
        return adapter.validate_json(raw)
    except ValueError:
        raise BadAnswer from None  # the message of pydantic quotes the answer


async def post_json(
    client: GuardClient, url: str, payload: Any, headers: Mapping[str, str]
) -> bytes:
    """Send JSON and return the body of the response. Raises ``NoAnswer`` and ``OSError``."""
    data = payload if isinstance(payload, bytes) else orjson.dumps(payload)
    status, body = await client.post(url, {**REQUEST_HEADERS, **headers}, data)
    if status != 200:
        raise NoAnswer
    return body


def list_nonblank_indexes(texts: Sequence[ServiceText]) -> list[int]:
    return [number for number, piece in enumerate(texts) if piece.text.strip()]
