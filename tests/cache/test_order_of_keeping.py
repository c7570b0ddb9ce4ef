"""An answer is shown before it is kept, and a bug in either is that of one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pytest

from proxy.app.context import new_record
from proxy.cache import AnswerCache
from proxy.cache.store import CacheBackend
from proxy.call.record import Record
from proxy.ports import OutputGuards, Sink
from proxy.types import Call, Plan, ResponseHead
from proxy.types.events import STOP, Finish, Frame
from tests.cache.test_cache_call import (
    ROUTE,
    all_in,
    ask,
    gated,
    good,
)
from tests.cache.world import Cached, cached_proxy
from tests.doubles import (
    ScriptedUpstream,
    Unguarded,
    answer,
    legacy,
)
from tests.test_pipeline import BEARER


class Order:
    """A client and a store at once: what was shown and what was kept, in its order, and when the
    round of the loop was over in which it was shown."""

    def __init__(self, bug: Exception | None = None) -> None:
        self.seen: list[str] = []
        self.values: list[bytes] = []
        self._bug = bug

    async def start(self, head: ResponseHead, record: Record) -> None: ...

    async def send(self, frames: Sequence[Frame]) -> None:
        self.seen.append("shown")
        asyncio.get_running_loop().call_soon(self.seen.append, "over")

    def try_send(self, frames: Sequence[Frame]) -> bool:
        return False

    async def get(self, key: bytes) -> bytes | None:
        return None

    def put(self, key: bytes, value: bytes, ttl: float) -> None:
        self.seen.append("kept")
        self.values.append(value)
        if self._bug is not None:
            raise self._bug

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None: ...


async def capture_call(cached: Cached, upstream: ScriptedUpstream) -> tuple[Plan, Call]:
    """Return what was decided of a call, and the call."""
    upstream.answer_with(good(streamed=False))
    await ask(cached, streamed=False)
    [record] = await cached.sink.wait(1)
    assert record.plan is not None
    assert record.call is not None
    return record.plan, record.call


async def served(
    cached: Cached,
    upstream: ScriptedUpstream,
    order: Order,
    changed: Callable[[], None] | None = None,
) -> None:
    """Serve a call that leads, whose answer has one frame."""
    plan, call = await capture_call(cached, upstream)
    cache = AnswerCache({"memory": CacheBackend(order, b"s" * 32, changed)}, cached.clock)
    choice = {"index": 0, "message": {"content": "Hello."}, "finish_reason": "stop"}

    async def forward(to: Sink) -> None:
        await to.start(ResponseHead(streamed=False), new_record())
        events = Finish(0, "stop"), STOP
        await to.send([Frame(events, "chat", {"choices": [choice]}, last=True)])

    await cache.serve(plan, call, new_record(), order, forward)


async def test_small_response_is_sent_then_stored(
    cached: Cached, upstream: ScriptedUpstream
) -> None:
    order = Order()

    await served(cached, upstream, order)
    await asyncio.sleep(0)

    assert order.seen == ["shown", "kept", "over"]


@pytest.mark.parametrize("changed", [None, lambda: None], ids=["own", "where-others-read"])
async def test_only_own_stores_skip_tags(
    changed: Callable[[], None] | None, cached: Cached, upstream: ScriptedUpstream
) -> None:
    order = Order()

    await served(cached, upstream, order, changed)

    assert [b"Hello." in value for value in order.values] == [changed is None]


async def test_store_error_is_raised_by_the_leader(
    cached: Cached, upstream: ScriptedUpstream
) -> None:
    order = Order(KeyError("inside"))

    with pytest.raises(KeyError):
        await served(cached, upstream, order)

    assert order.seen[:2] == ["shown", "kept"]


class Broken(Unguarded):
    """A guard with a bug."""

    def __init__(self) -> None:
        self.bugs = 1

    def guard_output(self) -> OutputGuards:
        if self.bugs:
            self.bugs -= 1
            raise KeyError("inside")
        return self


async def test_a_bug_in_the_call_that_leads_is_its_own(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, answer(legacy())))
    async with cached_proxy(tmp_path / "policies", upstream, guards=Broken()) as cached:
        async with asyncio.TaskGroup() as group:
            body = ROUTE.body(streamed=False)
            asking = [
                group.create_task(cached.client.post(ROUTE.path, headers=BEARER, json=body))
                for _ in range(5)
            ]
            await all_in(cached, 5)
            gate.set()
        statuses = sorted(task.result().status for task in asking)

        assert statuses == [200] * 4 + [500]
        assert [type(bug) for bug in cached.bugs] == [KeyError]
