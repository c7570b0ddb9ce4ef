"""A clock that jumps: hours of waiting take no time, in the order in which they end."""

from __future__ import annotations

import asyncio

import pytest

from proxy.policytest.harness import run_simulated


def test_waits_take_no_time_and_end_in_order() -> None:
    ended: list[str] = []

    async def wait(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        ended.append(name)

    async def both() -> float:
        await asyncio.gather(wait(7200, "long"), wait(3600, "short"))
        return asyncio.get_running_loop().time()

    elapsed = run_simulated(both())

    assert ended == ["short", "long"]
    assert elapsed == pytest.approx(7200, abs=1)


def test_a_timeout_ends_what_hangs() -> None:
    async def hang() -> None:
        async with asyncio.timeout(600):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_simulated(hang())


def test_a_wait_for_nothing_is_an_error_and_no_hang() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="no timer or response can trigger"):
        run_simulated(forever())
