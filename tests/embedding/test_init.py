"""Vectors made off the loop: how many wait, and what becomes of a model that cannot be used."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from proxy.embedding import RETRY_S, WAITING, Done, Embeddings
from proxy.embedding.model import EmbeddingModel
from tests.cache.stores import Clock


@dataclass
class World:
    """Embeddings of one thread, and what they tell."""

    pool: ThreadPoolExecutor
    clock: Clock = field(default_factory=Clock)
    told: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    embeddings: Embeddings = field(init=False)

    def __post_init__(self) -> None:
        self.embeddings = Embeddings(self.pool, self.clock, self.count, self.broken.append)

    def count(self, result: Done, count: int = 1) -> None:
        self.told[result] += count


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    with ThreadPoolExecutor(1) as pool:
        yield World(pool)


async def test_texts_get_vectors_and_a_long_one_none(model: EmbeddingModel) -> None:
    async with world() as made:
        short, long = await made.embeddings.vectors(["Hello", "word " * 999])

    assert short == model.vector("Hello")
    assert long is None
    assert made.told == {"done": 1, "long": 1}


async def test_more_than_may_wait_are_told_to_go_on_without(model: EmbeddingModel) -> None:
    async with world() as made:
        free = threading.Event()
        made.pool.submit(free.wait)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(made.embeddings.vectors(["Hello"] * WAITING))
            await asyncio.sleep(0)
            busy = await made.embeddings.vectors(["Hello"])
            free.set()
        after = await made.embeddings.vectors(["Hello"])

    assert busy == [None]
    assert waiting.result() == [model.vector("Hello")] * WAITING
    assert after == [model.vector("Hello")]
    assert made.told == {"done": WAITING + 1, "busy": 1}


async def test_who_leaves_makes_room(model: EmbeddingModel) -> None:
    async with world() as made:
        free = threading.Event()
        made.pool.submit(free.wait)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await made.embeddings.vectors(["Hello"] * WAITING)
        free.set()

        assert await made.embeddings.vectors(["Hello"]) == [model.vector("Hello")]


async def test_a_broken_model_is_left_alone_for_a_while(
    tmp_path: Path, model: EmbeddingModel
) -> None:
    folder = str(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    async with world() as made:
        said = [await made.embeddings.vectors(["Hello"], folder) for _ in range(3)]
        told = list(made.broken)
        made.clock.now += RETRY_S
        await made.embeddings.vectors(["Hello"], folder)
        good = await made.embeddings.vectors(["Hello"])

    assert said == [[None]] * 3
    assert len(told) == 1
    assert len(made.broken) == 2
    assert good == [model.vector("Hello")]
    assert made.told == {"failed": 4, "done": 1}
