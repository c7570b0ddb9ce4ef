"""Simulated time of policy tests."""

from __future__ import annotations

import asyncio

import pytest

from proxy.policytest.harness import run_simulated


def test_sleeps_are_virtual_and_ordered() -> None:
    ended: list[str] = []

    async def wait(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        ended.append(name)

    async def wait_twice() -> float:
        await asyncio.gather(wait(7200, "long"), wait(3600, "short"))
        return asyncio.get_running_loop().time()

    elapsed = run_simulated(wait_twice())

    assert ended == ["short", "long"]
    assert elapsed == pytest.approx(7200, abs=1)


def test_endless_wait_raises() -> None:
    async def hang(timeout_s: float | None) -> None:
        async with asyncio.timeout(timeout_s):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_simulated(hang(600))
    with pytest.raises(RuntimeError, match="no timer or response can trigger"):
        run_simulated(hang(None))
