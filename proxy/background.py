"""Work that goes on beside the calls, and who ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have ``work`` go on until the block is left, which cancels it. When it fails, the block is
    cancelled and raises an ``ExceptionGroup`` of why."""
    group = asyncio.TaskGroup()
    await group.__aenter__()
    task = group.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await group.__aexit__(None, None, None)
