"""What goes on beside the calls ends with who owns it."""

from __future__ import annotations

import asyncio

import pytest

from proxy.background import running_beside


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def test_work_ends_with_the_block() -> None:
    ended: list[str] = []

    async with running_beside(forever(ended)):
        await asyncio.sleep(0)
        assert ended == []

    assert ended == ["ended"]


async def test_what_the_block_raises_comes_through_as_it_is() -> None:
    ended: list[str] = []

    with pytest.raises(KeyError):
        async with running_beside(forever(ended)):
            await asyncio.sleep(0)
            raise KeyError

    assert ended == ["ended"]


async def test_work_that_fails_ends_the_block() -> None:
    async def failing() -> None:
        raise KeyError

    with pytest.raises(ExceptionGroup) as failed:
        async with running_beside(failing()):
            await asyncio.Event().wait()

    assert failed.group_contains(KeyError)
