"""What guards that ask somebody else have in common: how they send texts and read answers.

An answer that is not exactly what was agreed on says nothing: each error here means that the guard
could not tell, and its name is all that a log gets to see of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter

from proxy.dialects.counting import read_distinct
from proxy.types.guard import GuardEgress, Piece

SPOKEN_KINDS = frozenset({"arguments", "content", "prompt", "reasoning", "refusal", "suffix"})
"""The kinds of text that somebody says to somebody: what is judged by its sense."""

HEADERS = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "headrace",
}


class NoAnswer(Exception):
    """It answered with a status other than 200."""


class BadAnswer(Exception):
    """It answered with something else than what was agreed on."""


class TooLong(Exception):
    """There is more text than may be asked about."""


class Unsure(Exception):
    """It says itself that it cannot tell."""


class ServiceAnswer(BaseModel):
    """An answer, in whose JSON every type must be the very one."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class StrictAnswer(ServiceAnswer):
    """An answer that says what was agreed on, and nothing else."""

    model_config = ConfigDict(extra="forbid")


T = TypeVar("T")


def read(form: TypeAdapter[T], body: bytes | str) -> T:
    """Read an answer of a form. Raises ``BadAnswer``."""
    raw = body.encode() if isinstance(body, str) else body
    try:
        read_distinct(raw)
        return form.validate_json(raw)
    except ValueError:
        raise BadAnswer from None  # what pydantic says of it quotes it


async def post(outside: GuardEgress, url: str, payload: Any, headers: Mapping[str, str]) -> bytes:
    """Send JSON, return the body of the answer. Raises ``NoAnswer`` and ``OSError``."""
    data = payload if isinstance(payload, bytes) else orjson.dumps(payload)
    status, body = await outside.post(url, {**HEADERS, **headers}, data)
    if status != 200:
        raise NoAnswer
    return body


def telling(texts: Sequence[Piece]) -> list[int]:
    """Return the indexes of the texts that are not blank."""
    return [number for number, piece in enumerate(texts) if piece.text.strip()]
