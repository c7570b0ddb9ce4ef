"""Work on large bodies is done by a thread, and work on small ones at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.offload import LARGE_BYTES, Offload


async def test_only_work_on_large_bodies_leaves_the_loop() -> None:
    with ThreadPoolExecutor(1, "bodies") as executor:
        offload = Offload(executor)

        small = await offload.run(LARGE_BYTES, threading.current_thread)
        large = await offload.run(LARGE_BYTES + 1, threading.current_thread)

    assert small is threading.current_thread()
    assert large.name.startswith("bodies")


@pytest.mark.parametrize("size", [0, LARGE_BYTES + 1])
async def test_what_the_work_raises_comes_through(size: int) -> None:
    def failing() -> None:
        raise LookupError("why")

    with pytest.raises(LookupError, match="why"):
        await Offload().run(size, failing)
