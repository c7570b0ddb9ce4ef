"""Responses that the proxy makes itself: the models of a key, and estimated token counts."""

from __future__ import annotations

from calendar import timegm
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from proxy.dialects import DIALECTS
from proxy.dialects.document import COUNT, document_frame
from proxy.money.estimate import estimate_quarters, to_tokens
from proxy.ports import HandOn
from proxy.runtime.offload import Offload
from proxy.types import Call, Json, Plan, ResponseHead
from proxy.types.events import Frame
from proxy.types.target import ListedModel

ESTIMATED = f"{COUNT} estimated"
WHOLE = ResponseHead(streamed=False)
PICTURE = 1600  # tokens of the largest picture that a model does not scale down
FILE_BYTES = 64 * 1024  # of a file in base64 that count as one picture


@dataclass(slots=True)
class LocalResponse:
    """One JSON document that ``produce`` returns."""

    produce: Callable[[], Awaitable[Json]]
    head: ResponseHead = WHOLE

    async def frames(self, hand_on: HandOn | None = None) -> AsyncIterator[Sequence[Frame]]:
        yield (document_frame(await self.produce()),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        return None


async def list_models(models: Sequence[ListedModel], *, is_list: bool) -> Json:
    """Return the models that a key may use, or the only one if ``is_list`` is False."""
    data = [
        {
            "id": model.id,
            "object": "model",
            "created": timegm(model.created.timetuple()),  # midnight of the day
            "owned_by": model.owner,
        }
        for model in models
    ]
    return {"object": "list", "data": data} if is_list else data[0]


async def count_tokens(call: Call, offload: Offload) -> Json:
    """Return the token estimate that limits use. ``offload`` estimates large requests."""
    return {COUNT: await offload.run(call.size, partial(estimated, call), call.scheduling_key)}


def is_counted_here(plan: Plan, call: Call) -> bool:
    """Return True if the upstream of a token count has no endpoint for it."""
    if call.head.endpoint != "count_tokens":
        return False
    spoken = DIALECTS[plan.model_calls[0].targets[0].upstream.dialect]
    return "count_tokens" not in spoken.server.paths


def estimated(call: Call) -> int:
    """Return the tokens of a request. Pictures and files count by number and size, not by the
    length of their base64."""
    found: list[int] = []
    texts = _without_data(call.body, found)
    return to_tokens(estimate_quarters(texts)) + sum(found)


def _without_data(value: Any, found: list[int]) -> Any:
    """Return a value without the data of pictures and files. Add their tokens to ``found``."""
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
