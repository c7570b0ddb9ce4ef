"""How many tokens a request has, estimated here for an upstream that does not say it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from proxy.dialects import DIALECTS
from proxy.dialects.reading import COUNT
from proxy.estimate import body_quarters, whole_tokens
from proxy.offload import Offload
from proxy.ports import HandOn
from proxy.types import Call, Chunk, Head, Plan

ESTIMATED = f"{COUNT} estimated"
WHOLE = Head(streamed=False)
PICTURE = 1600  # tokens: of the largest that a model looks at as it is
FILE_BYTES = 64 * 1024  # of a file, in base64, that are taken for as much as a picture


def is_counted_here(plan: Plan, call: Call) -> bool:
    """True if a count is asked for of a target whose upstream has no endpoint that tells it."""
    if call.head.endpoint != "count_tokens":
        return False
    spoken = DIALECTS[plan.model_calls[0].targets[0].upstream.dialect]
    return "count_tokens" not in spoken.server.paths


@dataclass(slots=True)
class CountedHere:
    """The estimate that limits go by, for a client that asks how long its request is. That of a
    large one is made by ``offload``."""

    call: Call
    offload: Offload
    head: Head = WHOLE

    async def chunks(self, hand_on: HandOn | None = None) -> AsyncIterator[Sequence[Chunk]]:
        call = self.call
        tokens = await self.offload.run(call.size, partial(estimated, call), call.caller)
        yield (Chunk({COUNT: tokens}, last=True),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *left_by: object) -> None:
        return None


def estimated(call: Call) -> int:
    """Return the tokens of a request. What models look at counts by its number and size, not as the
    letters that its bytes are written in."""
    found: list[int] = []
    texts = _without_data(call.body, found)
    return whole_tokens(body_quarters(texts)) + sum(found)


def _without_data(value: Any, found: list[int]) -> Any:
    """Return a value without the bytes of pictures and files in it, whose tokens are ``found``."""
    if isinstance(value, list):
        return [_without_data(each, found) for each in value]
    if not isinstance(value, dict):
        return value
    data = value.get("data")
    if value.get("type") == "base64" and isinstance(data, str):
        picture = str(value.get("media_type")).startswith("image/")
        found.append(PICTURE if picture else PICTURE * max(1, len(data) // FILE_BYTES))
        return {}
    return {name: _without_data(each, found) for name, each in value.items()}
