"""Listeners and billing if the leading call disconnects, fails or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from proxy.cache import AnswerCache
from proxy.cache.store import CacheBackend
from proxy.call.record import Record, new_record
from proxy.errors import ClientDisconnected
from proxy.ports import OutputGuards, Sink
from proxy.types import Call, Plan, ResponseHead
from proxy.types.events import RESPONSE_END, Finish, Frame
from tests.cache.cached_proxy import Cached, cached_proxy, until_asked
from tests.cache.test_cache_call import (
    COST,
    FORMS,
    HERD,
    ROUTE,
    ask,
    call_concurrently,
    good,
    wait_for_disconnect,
    wait_until_served,
)
from tests.doubles import (
    PATIENCE_S,
    ScriptedUpstream,
    gated,
    hang,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.fakes import Unguarded
from tests.server.test_exchange import stable_value
from tests.test_pipeline import BEARER, reply_text


@FORMS
@pytest.mark.parametrize("when", ["before", "midway"])
async def test_listeners_get_response_after_leader_disconnects(
    when: str, streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    script = good(streamed=streamed, gate=gate) if streamed else good(streamed=False)
    upstream.answer_with(script if when == "midway" and streamed else gated(gate, script))
    leader = asyncio.gather(ask(cached, streamed=streamed))
    await until_asked(upstream, 1)
    listeners = [asyncio.gather(ask(cached, streamed=streamed)) for _ in range(20)]
    await wait_until_served(cached, 21)

    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    await wait_for_disconnect(cached)
    gate.set()

    answers = [(await listener)[0] for listener in listeners]
    assert {(status, result) for status, result, _ in answers} == {(200, "coalesced")}
    assert {reply_text(ROUTE, body, streamed=streamed) for *_, body in answers} == {" Paris."}
    assert len(upstream.requests) == 1
    records = await cached.sink.wait(21)
    [paid] = [record for record in records if record.billing.cost]
    assert (paid.outcome, paid.billing.usage_source) == ("client_abort", "provider")
    assert paid.billing.cost == COST
    assert (await ask(cached, streamed=streamed))[1] == "hit"


class DisconnectingSink:
    """A client that disconnects after some writes."""

    def __init__(self, takes: int = 100) -> None:
        self.frames: list[Frame] = []
        self._takes = takes

    async def set_response_head(self, head: ResponseHead, record: Record) -> None:
        """The head is ignored."""

    async def send(self, frames: Sequence[Frame]) -> None:
        if not self._takes:
            raise ClientDisconnected
        self._takes -= 1
        self.frames += frames

    def try_send(self, frames: Sequence[Frame]) -> bool:
        return False


async def test_listeners_outlive_leader_client(cached: Cached, upstream: ScriptedUpstream) -> None:
    plan, call = await capture_call(cached, upstream)
    cache = AnswerCache({"memory": CacheBackend(RecordingSinkAndStore(), b"s" * 32)}, cached.clock)
    was_sent, gate = asyncio.Event(), asyncio.Event()
    leader, listener = DisconnectingSink(takes=1), DisconnectingSink()

    async def forward(to: Sink) -> None:
        await to.set_response_head(ResponseHead(streamed=True), new_record())
        await to.send([Frame((), "chat", {"choices": []})])
        await was_sent.wait()
        await to.send([Frame((), "chat", {"choices": []})])
        await gate.wait()
        await to.send([Frame((RESPONSE_END,), "chat", last=True)])

    leading = asyncio.ensure_future(cache.serve(plan, call, new_record(), leader, forward))
    joining = asyncio.ensure_future(cache.serve(plan, call, new_record(), listener, forward))
    await stable_value(lambda: len(listener.frames))
    was_sent.set()
    await stable_value(lambda: len(listener.frames))
    leading.cancel()
    gate.set()

    await joining
    assert len(listener.frames) == 3
    with pytest.raises(asyncio.CancelledError):
        await leading


@FORMS
async def test_upstream_is_closed_when_all_disconnect(
    streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(hang())
    calls = [asyncio.gather(ask(cached, streamed=streamed)) for _ in range(5)]
    await wait_until_served(cached, 5)
    await until_asked(upstream, 1)

    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)

    async with asyncio.timeout(PATIENCE_S):
        await upstream.requests[0].closed.wait()
    records = await cached.sink.wait(5)
    assert {record.outcome for record in records} == {"client_abort"}
    upstream.answer_with(good(streamed=streamed))
    assert (await ask(cached, streamed=streamed))[:2] == (200, "miss")


@FORMS
async def test_one_listener_retries_after_leader_fails(
    streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    upstream.then(gated(gate, respond({"error": {"message": "x"}}, 500)))
    upstream.answer_with(good(streamed=streamed))

    answers = await call_concurrently(cached, gate, streamed=streamed)

    assert len(upstream.requests) == 2
    statuses = [status for status, *_ in answers]
    assert (statuses.count(502), statuses.count(200)) == (1, HERD - 1)
    bodies = [body for status, _, body in answers if status == 200]
    sent_texts = {reply_text(ROUTE, body, streamed=streamed) for body in bodies}
    assert sent_texts == {" Paris."}


async def test_failing_upstream_is_called_twice(cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, respond({"error": {"message": "x"}}, 500)))

    answers = await call_concurrently(cached, gate, streamed=False)

    assert len(upstream.requests) == 2
    assert {status for status, *_ in answers} == {502}


async def test_refusal_reaches_all_listeners(cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, respond({"error": {"message": "not so"}}, 400)))

    answers = await call_concurrently(cached, gate, streamed=False)

    assert len(upstream.requests) == 1
    assert {status for status, *_ in answers} == {400}
    assert all(b"not so" in body for *_, body in answers)


async def test_listeners_see_broken_stream(cached: Cached, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(stream(legacy_events("a", "b"), cut_after=2, gate=gate))

    answers = await call_concurrently(cached, gate, streamed=True, size=5)

    assert len(upstream.requests) == 1
    assert all(b'"error"' in body and b"[DONE]" not in body for *_, body in answers)
    records = await cached.sink.wait(5)
    assert {record.outcome for record in records} == {"upstream_error"}
    assert [record.saved for record in records] == [None] * 5


class RecordingSinkAndStore:
    """A client and a store at once. Records the order of responses sent and stored."""

    def __init__(self, bug: Exception | None = None) -> None:
        self.seen: list[str] = []
        self.values: list[bytes] = []
        self._bug = bug

    async def set_response_head(self, head: ResponseHead, record: Record) -> None: ...

    async def send(self, frames: Sequence[Frame]) -> None:
        self.seen.append("shown")

    def try_send(self, frames: Sequence[Frame]) -> bool:
        return False

    async def get(self, key: bytes) -> bytes | None:
        return None

    def save(self, key: bytes, value: bytes, ttl_s: float) -> None:
        self.seen.append("kept")
        self.values.append(value)
        if self._bug is not None:
            raise self._bug

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None: ...


async def capture_call(cached: Cached, upstream: ScriptedUpstream) -> tuple[Plan, Call]:
    """Return the plan of a call, and the call."""
    upstream.answer_with(good(streamed=False))
    await ask(cached, streamed=False)
    [record] = await cached.sink.wait(1)
    assert record.plan is not None
    assert record.call is not None
    return record.plan, record.call


async def served(cached: Cached, upstream: ScriptedUpstream, order: RecordingSinkAndStore) -> None:
    """Serve a leading call with a response of one frame."""
    plan, call = await capture_call(cached, upstream)
    cache = AnswerCache({"memory": CacheBackend(order, b"s" * 32)}, cached.clock)
    choice = {"index": 0, "message": {"content": "Hello."}, "finish_reason": "stop"}

    async def forward(to: Sink) -> None:
        await to.set_response_head(ResponseHead(streamed=False), new_record())
        events = Finish(0, "stop"), RESPONSE_END
        await to.send([Frame(events, "chat", {"choices": [choice]}, last=True)])

    await cache.serve(plan, call, new_record(), order, forward)


async def test_response_is_stored_before_sent(cached: Cached, upstream: ScriptedUpstream) -> None:
    order = RecordingSinkAndStore()

    await served(cached, upstream, order)

    assert order.seen == ["kept", "shown"]


async def test_leader_raises_store_error(cached: Cached, upstream: ScriptedUpstream) -> None:
    order = RecordingSinkAndStore(KeyError("inside"))

    with pytest.raises(KeyError):
        await served(cached, upstream, order)

    assert order.seen == ["kept", "shown"]


class Broken(Unguarded):
    """A guard with an internal error."""

    def __init__(self) -> None:
        self.bugs = 1

    def build_output_guards(self) -> OutputGuards:
        if self.bugs:
            self.bugs -= 1
            raise KeyError("inside")
        return self


async def test_internal_error_of_the_leader_stays_its_own(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, respond(legacy_completion())))
    async with cached_proxy(tmp_path / "policies", upstream, guards=Broken()) as cached:
        async with asyncio.TaskGroup() as group:
            body = ROUTE.body(streamed=False)
            asking = [
                group.create_task(cached.client.post(ROUTE.path, headers=BEARER, json=body))
                for _ in range(5)
            ]
            await wait_until_served(cached, 5)
            gate.set()
        statuses = sorted(task.result().status for task in asking)

        assert statuses == [200] * 4 + [500]
        assert [type(bug) for bug in cached.bugs] == [KeyError]
