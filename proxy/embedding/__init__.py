"""Vectors of texts, for those who compare what texts are about: in threads, few at a time.

A text that gets no vector is not an error: it was too long, too many were waiting, or the model
could not be used. Who asked goes on without; how often that happens is told.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Literal, Protocol

from proxy.embedding.model import EmbeddingModel, load
from proxy.ports import Vector

Done = Literal["done", "long", "busy", "failed"]
WAITING = 64  # texts under way and waiting, together; a short one takes some 5 ms
MODELS = 2  # that are kept loaded: more only while policies change from one to another
RETRY_S = 60.0  # before a model that could not be used is tried again


class Resting(Exception):
    """The model could not be used a moment ago."""


class ResultCounter(Protocol):
    """Who is told what became of texts, and of a model that cannot be used."""

    def __call__(self, result: Done, count: int = 1) -> None: ...


@dataclass(slots=True)
class Embeddings:
    """Runs models in ``pool``, whose size bounds how many run at once. ``now`` gives seconds;
    ``broken`` is told the type of error for which a model cannot be used."""

    pool: Executor
    now: Callable[[], float]
    tell: ResultCounter
    broken: Callable[[str], None]
    _models: OrderedDict[str, asyncio.Future[EmbeddingModel]] = field(default_factory=OrderedDict)
    _failed: dict[str, float] = field(default_factory=dict)  # names of the policies: few
    _under_way: int = 0

    async def vectors(self, texts: Sequence[str], model: str = "") -> Sequence[Vector | None]:
        if self._under_way + len(texts) > WAITING:
            self.tell("busy", len(texts))
            return [None] * len(texts)
        self._under_way += len(texts)
        try:
            return await self._made(texts, model)
        finally:
            self._under_way -= len(texts)

    async def _made(self, texts: Sequence[str], name: str) -> Sequence[Vector | None]:
        loop = asyncio.get_running_loop()
        try:
            model = await self._model(name)
            made = [await loop.run_in_executor(self.pool, model.vector, text) for text in texts]
        except Exception as error:  # noqa: BLE001  # each library has its own kinds
            self._fail(name, error)
            made = []
        if not made:
            self.tell("failed", len(texts))
            return [None] * len(texts)
        for vector in made:
            self.tell("long" if vector is None else "done")
        return made

    async def _model(self, name: str) -> EmbeddingModel:
        """Return a model. The first caller has it loaded, which goes on if that one does not wait.

        Raises whatever keeps it from being loaded.
        """
        if name not in self._models:
            if self.now() < self._failed.get(name, 0.0):
                raise Resting
            loading = asyncio.get_running_loop().run_in_executor(self.pool, load, name)
            loading.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._models[name] = loading
            if len(self._models) > MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(name)
        return await asyncio.shield(self._models[name])

    def _fail(self, name: str, error: Exception) -> None:
        """Leave a model alone for a while, and say so once."""
        if not isinstance(error, Resting):
            self._models.pop(name, None)
            self._failed[name] = self.now() + RETRY_S
            self.broken(type(error).__name__)
