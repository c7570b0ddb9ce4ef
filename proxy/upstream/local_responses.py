"""Responses of the proxy itself: the models of a key, and estimated token counts."""

from __future__ import annotations

from calendar import timegm
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from proxy.dialects import DIALECTS
from proxy.dialects.document import COUNT_MEMBER, make_document_frame
from proxy.money.estimate import estimate_body_quarters, to_tokens
from proxy.ports import Feed
from proxy.runtime.fair_queue import Offload
from proxy.types import Call, Json, Plan, ResponseHead
from proxy.types.events import Frame
from proxy.types.target import ListedModel

COUNT_ESTIMATED = f"{COUNT_MEMBER} estimated"
DOCUMENT_HEAD = ResponseHead(streamed=False)
IMAGE_TOKENS = 1600  # tokens of the largest image that models do not scale down
FILE_BYTES = 64 * 1024  # base64 bytes that count as one image


@dataclass(slots=True)
class LocalResponse:
    """An ``UpstreamResponse`` of one JSON document, which ``produce`` returns."""

    produce: Callable[[], Awaitable[Json]]
    head: ResponseHead = DOCUMENT_HEAD

    async def frames(self, feed: Feed | None = None) -> AsyncIterator[Sequence[Frame]]:
        yield (make_document_frame(await self.produce()),)

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
            "created": timegm(model.created.timetuple()),  # midnight
            "owned_by": model.owner,
        }
        for model in models
    ]
    return {"object": "list", "data": data} if is_list else data[0]


async def build_token_estimate_body(call: Call, offload: Offload) -> Json:
    """Return the body of the response: the input tokens by the estimate for limits."""
    count = partial(estimate_tokens, call)
    return {COUNT_MEMBER: await offload.run(call.size, count, call.scheduling_key)}


def is_counted_locally(plan: Plan, call: Call) -> bool:
    """Return True for a token count whose upstream has no endpoint for it."""
    if call.head.endpoint != "count_tokens":
        return False
    dialect = DIALECTS[plan.model_calls[0].targets[0].upstream.dialect]
    return "count_tokens" not in dialect.server.paths


def estimate_tokens(call: Call) -> int:
    """Estimate the tokens of a request. Images and files count by number and size."""
    media_tokens = 0

    def strip_media(value: Any) -> Any:
        nonlocal media_tokens
        if isinstance(value, list):
            return [strip_media(item) for item in value]
        if not isinstance(value, dict):
            return value
        data = value.get("data")
        if value.get("type") == "base64" and isinstance(data, str):
            is_image = str(value.get("media_type")).startswith("image/")
            images = 1 if is_image else max(1, len(data) // FILE_BYTES)
            media_tokens += images * IMAGE_TOKENS
            return {}
        return {name: strip_media(item) for name, item in value.items()}

    text_quarters = estimate_body_quarters(strip_media(call.body))
    return to_tokens(text_quarters) + media_tokens
