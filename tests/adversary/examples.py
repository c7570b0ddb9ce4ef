"""Runs coroutines on the test's event loop with values from hypothesis."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st


async def check_examples(
    drawn: st.SearchStrategy[Any],
    check: Callable[[Any], Awaitable[object]],
    examples: int,
    *phases: Phase,
) -> None:
    """Await ``check`` for each drawn value. Hypothesis runs in another thread."""
    loop = asyncio.get_running_loop()

    async def check_one(value: Any) -> None:
        random.seed()  # hypothesis fixes the seed, but ids must be unique
        await check(value)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=phases or (Phase.generate, Phase.shrink),
    )
    @given(drawn)
    def check_all(value: Any) -> None:
        asyncio.run_coroutine_threadsafe(check_one(value), loop).result()

    await asyncio.to_thread(check_all)
