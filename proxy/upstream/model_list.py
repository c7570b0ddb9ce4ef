"""The answer to ``GET /models`` and ``GET /models/{model}``: what a key may use, as policy says."""

from __future__ import annotations

from calendar import timegm
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Self

from proxy.ports import HandOn
from proxy.types import Chunk, Head, Json
from proxy.types.listed_model import ListedModel

WHOLE = Head(streamed=False)


@dataclass(slots=True)
class ModelList:
    """The models that a key may use, or the one that was asked for: policy itself is the answer."""

    models: tuple[ListedModel, ...]
    is_list: bool = True
    head: Head = WHOLE

    async def chunks(self, hand_on: HandOn | None = None) -> AsyncIterator[Sequence[Chunk]]:
        models = [_model_object(model) for model in self.models]
        data = {"object": "list", "data": models} if self.is_list else models[0]
        yield (Chunk(data, last=True),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *left_by: object) -> None:
        return None


def _model_object(model: ListedModel) -> Json:
    """Return what a list says of a model; ``created`` is the second in which its day began."""
    created = timegm(model.created.timetuple())
    return {"id": model.id, "object": "model", "created": created, "owned_by": model.owner}
