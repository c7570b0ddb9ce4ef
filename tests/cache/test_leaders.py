"""Who leads for others that ask the same may leave, fail or be refused: what the others get, and
who pays."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from proxy.app.context import new_record
from proxy.cache import AnswerCache
from proxy.cache.store import CacheBackend
from proxy.call.record import Record
from proxy.errors import ClientDisconnected
from proxy.ports import Sink
from proxy.types import ResponseHead
from proxy.types.events import STOP, Frame
from tests.cache.test_cache_call import (
    COST,
    FORMS,
    HERD,
    ROUTE,
    all_in,
    ask,
    gated,
    good,
    herd,
    noticed,
)
from tests.cache.test_order_of_keeping import Order, asked
from tests.cache.world import Cached, until_asked
from tests.doubles import (
    PATIENCE_S,
    ScriptedUpstream,
    answer,
    hang,
    legacy_events,
    stream,
)
from tests.server.test_exchange import settled
from tests.test_pipeline import texts


@FORMS
@pytest.mark.parametrize("when", ["before", "midway"])
async def test_a_leader_that_leaves_takes_the_answer_from_nobody(
    when: str, streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    script = good(streamed=streamed, gate=gate) if streamed else good(streamed=False)
    upstream.answer_with(script if when == "midway" and streamed else gated(gate, script))
    leader = asyncio.gather(ask(cached, streamed=streamed))
    await until_asked(upstream, 1)
    others = [asyncio.gather(ask(cached, streamed=streamed)) for _ in range(20)]
    await all_in(cached, 21)

    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    await noticed(cached)
    gate.set()

    answers = [(await other)[0] for other in others]
    assert {(status, result) for status, result, _ in answers} == {(200, "coalesced")}
    assert {texts(ROUTE, body, streamed=streamed) for *_, body in answers} == {" Paris."}
    assert len(upstream.requests) == 1
    records = await cached.sink.wait(21)
    [paid] = [record for record in records if record.billing.cost]
    assert (paid.outcome, paid.billing.cost, paid.billing.source) == (
        "client_abort",
        COST,
        "provider",
    )
    assert (await ask(cached, streamed=streamed))[1] == "hit"


class Going:
    """A client that takes so many writes, and then is gone."""

    def __init__(self, takes: int = 100) -> None:
        self.frames: list[Frame] = []
        self._takes = takes

    async def start(self, head: ResponseHead, record: Record) -> None:
        """A head is not shown here."""

    async def send(self, frames: Sequence[Frame]) -> None:
        if not self._takes:
            raise ClientDisconnected
        self._takes -= 1
        self.frames += frames

    def try_send(self, frames: Sequence[Frame]) -> bool:
        return False


async def test_a_leader_whose_write_fails_before_it_is_cancelled_takes_the_answer_from_nobody(
    cached: Cached, upstream: ScriptedUpstream
) -> None:
    plan, call = await asked(cached, upstream)
    cache = AnswerCache({"memory": CacheBackend(Order(), b"s" * 32)}, cached.clock)
    shown, gate = asyncio.Event(), asyncio.Event()
    leader, other = Going(takes=1), Going()

    async def forward(to: Sink) -> None:
        await to.start(ResponseHead(streamed=True), new_record())
        await to.send([Frame((), "chat", {"choices": []})])
        await shown.wait()
        await to.send([Frame((), "chat", {"choices": []})])
        await gate.wait()
        await to.send([Frame((STOP,), "chat", last=True)])

    leading = asyncio.ensure_future(cache.serve(plan, call, new_record(), leader, forward))
    joining = asyncio.ensure_future(cache.serve(plan, call, new_record(), other, forward))
    await settled(lambda: len(other.frames))
    shown.set()
    await settled(lambda: len(other.frames))
    leading.cancel()
    gate.set()

    await joining
    assert len(other.frames) == 3
    with pytest.raises(asyncio.CancelledError):
        await leading


@FORMS
async def test_the_upstream_is_freed_at_once_when_all_have_left(
    streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(hang())
    calls = [asyncio.gather(ask(cached, streamed=streamed)) for _ in range(5)]
    await all_in(cached, 5)
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
async def test_when_a_leader_fails_one_other_asks_and_the_rest_notice_nothing(
    streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    upstream.then(gated(gate, answer({"error": {"message": "x"}}, 500)))
    upstream.answer_with(good(streamed=streamed))

    answers = await herd(cached, gate, streamed=streamed)

    assert len(upstream.requests) == 2
    statuses = [status for status, *_ in answers]
    assert (statuses.count(502), statuses.count(200)) == (1, HERD - 1)
    said = {texts(ROUTE, body, streamed=streamed) for status, _, body in answers if status == 200}
    assert said == {" Paris."}


async def test_an_upstream_that_keeps_failing_is_asked_twice_for_all(
    cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, answer({"error": {"message": "x"}}, 500)))

    answers = await herd(cached, gate, streamed=False)

    assert len(upstream.requests) == 2
    assert {status for status, *_ in answers} == {502}


async def test_a_refusal_of_the_question_holds_for_all_who_ask_it(
    cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, answer({"error": {"message": "not so"}}, 400)))

    answers = await herd(cached, gate, streamed=False)

    assert len(upstream.requests) == 1
    assert {status for status, *_ in answers} == {400}
    assert all(b"not so" in body for *_, body in answers)


async def test_a_stream_that_breaks_breaks_for_all_who_saw_its_beginning(
    cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    upstream.answer_with(stream(legacy_events("a", "b"), cut_after=2, gate=gate))

    answers = await herd(cached, gate, streamed=True, size=5)

    assert len(upstream.requests) == 1
    assert all(b'"error"' in body and b"[DONE]" not in body for *_, body in answers)
    records = await cached.sink.wait(5)
    assert {record.outcome for record in records} == {"upstream_error"}
    assert [record.saved for record in records] == [None] * 5
