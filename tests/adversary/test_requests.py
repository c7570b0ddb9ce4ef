"""Requests drawn from a grammar keep every promise of the proxy."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from tests.adversary.grammar import Hostile, requests
from tests.adversary.house import House, house


async def attacked(folder: Path, examples: int) -> dict[int, int]:
    loop = asyncio.get_running_loop()
    async with house(folder) as running:
        attack = partial(_attack, running, loop, examples)
        await loop.run_in_executor(None, attack)
        return running.statuses


def _attack(running: House, loop: asyncio.AbstractEventLoop, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(hostile=requests())
    def attack(hostile: Hostile) -> None:
        asyncio.run_coroutine_threadsafe(running.send(hostile), loop).result()

    attack()


async def test_no_request_breaks_a_promise(tmp_path: Path, examples: int) -> None:
    statuses = await attacked(tmp_path, examples)
    assert statuses.get(200, 0) >= examples / 20, statuses
    assert statuses.get(400, 0) >= examples / 20, statuses
