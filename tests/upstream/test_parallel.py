"""Parallel requests: several models, and hedged requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from proxy.call.attempts import AttemptReason
from proxy.call.summary import summarize
from proxy.errors import ProxyError, UpstreamInvalid
from proxy.ports import Feed, UpstreamResponse
from proxy.types import ResponseHead
from proxy.types.events import RESPONSE_END, Fault, Frame
from proxy.upstream.parallel import FramePerModelResponse, open_hedged
from proxy.upstream.response import HttpUpstreamResponse
from tests.doubles import (
    PATIENCE_S,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    hang,
    legacy_completion,
    respond,
)
from tests.upstream.test_retries import ask, models, resilient_proxy

HEAD = ResponseHead(streamed=False)


class GivenAnswer:
    """A response with the given groups of frames."""

    head = HEAD

    def __init__(self, groups: Sequence[Sequence[Frame]]) -> None:
        self.groups = groups

    async def frames(self, feed: Feed | None = None) -> AsyncIterator[Sequence[Frame]]:
        for group in self.groups:
            yield group

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass


async def frames_of(*answers: Sequence[Sequence[Frame]]) -> list[Frame]:
    async def begin(groups: Sequence[Sequence[Frame]]) -> UpstreamResponse:
        return GivenAnswer(groups)

    async def redact_error(error: ProxyError) -> None:
        pass

    calls = [lambda groups=groups: begin(groups) for groups in answers]
    async with FramePerModelResponse(calls, redact_error, HEAD) as fan_out:
        return [frame async for group in fan_out.frames() for frame in group]


@pytest.mark.parametrize("empty", [[], [[]]], ids=["no group", "empty group"])
async def test_response_without_frames_is_an_error(empty: list[list[Frame]]) -> None:
    answered, failed = await frames_of([[Frame(()), Frame((RESPONSE_END,))], []], empty)

    assert answered == Frame((RESPONSE_END,))
    assert [type(event) for event in failed.events] == [Fault]
    assert (failed.model_call, failed.last) == (1, True)


async def test_responses_without_frames_fail_together() -> None:
    with pytest.raises(UpstreamInvalid, match="empty response"):
        await frames_of([], [[]])


HEDGE = "hedge: {after: 50ms}"


def sets(joined: asyncio.Event) -> Script:
    """Return a script that sets an event and then hangs."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        joined.set()
        await request.closed.wait()

    return script


async def test_hedge_wins_and_cuts_slow_target(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": hang()}
    async with resilient_proxy(tmp_path, upstream, HEDGE) as proxy:
        reply = await ask(proxy, prompt="x" * 40, max_tokens=1)

        assert (reply.status, reply.json["choices"][0]["text"]) == (200, " Paris.")
        async with asyncio.timeout(PATIENCE_S):
            await upstream.requests[0].closed.wait()
        [record] = await proxy.sink.wait()
        metrics = await proxy.metrics()
    assert models(upstream) == ["primary", "spare"]
    assert [(attempt.reason, attempt.lost_hedge) for attempt in record.attempts] == [
        ("first", True),
        ("hedge", False),
    ]
    assert [result.served for _, result, bill in summarize(record).attempts if bill] == [
        False,
        True,
    ]
    assert summarize(record).lost_cost == 10 * 150 + 600
    assert (
        'headrace_lost_cost_usd_total{cause="hedge",deployment="resilient",model="primary"'
        in metrics
    )


async def test_fast_target_is_not_hedged(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with resilient_proxy(tmp_path, upstream, "hedge: {after: 5s}") as proxy:
        await ask(proxy)
        [record] = await proxy.sink.wait()

    assert (models(upstream), summarize(record).lost_cost) == (["primary"], 0)


async def test_early_failure_starts_hedge(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": respond({}, 500)}
    async with resilient_proxy(tmp_path, upstream, "hedge: {after: 60s}") as proxy:
        async with asyncio.timeout(PATIENCE_S):
            reply = await ask(proxy)

    assert (reply.status, models(upstream)) == (200, ["primary", "spare"])


async def test_hedges_are_bounded_like_retries(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async def slowly(request: ReceivedRequest, wire: Wire) -> None:
        await asyncio.sleep(0.03)  # the test measures a delay
        await respond(legacy_completion())(request, wire)

    upstream.by_model = {"primary": slowly, "spare": hang()}
    async with resilient_proxy(tmp_path, upstream, "hedge: {after: 5ms}") as proxy:
        for _ in range(30):
            assert (await ask(proxy)).status == 200

    assert models(upstream).count("primary") == 30
    assert 8 <= models(upstream).count("spare") <= 10 + 30 * 0.2


async def test_first_attempt_may_win_after_a_hedge(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    joined = asyncio.Event()

    async def once_joined(request: ReceivedRequest, wire: Wire) -> None:
        await joined.wait()
        await respond(legacy_completion(" First."))(request, wire)

    upstream.by_model = {"primary": once_joined, "spare": sets(joined)}
    async with resilient_proxy(tmp_path, upstream, HEDGE) as proxy:
        reply = await ask(proxy)
        await upstream.requests[1].closed.wait()
        [record] = await proxy.sink.wait()

    assert reply.json["choices"][0]["text"] == " First."
    assert [attempt.lost_hedge for attempt in record.attempts] == [False, True]


FINAL_ENDS = {
    "400": (400, {"error": {"message": "no", "type": "invalid_request_error"}}),
    "content filter": (400, {"error": {"message": "no", "code": "content_filter"}}),
}
"""Ends of one attempt that are the end of the call."""


@pytest.mark.parametrize("is_first", [True, False], ids=["first ends", "hedge ends"])
@pytest.mark.parametrize("final", FINAL_ENDS)
async def test_dropped_attempt_is_a_hedge_loss(
    final: str, is_first: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    status, body = FINAL_ENDS[final]
    joined = asyncio.Event()

    async def end(request: ReceivedRequest, wire: Wire) -> None:
        await joined.wait()
        await respond(body, status)(request, wire)

    ends, dropped = ("primary", "spare") if is_first else ("spare", "primary")
    upstream.by_model = {ends: end, dropped: sets(joined)}
    async with resilient_proxy(tmp_path, upstream, HEDGE) as proxy:
        reply = await ask(proxy, prompt="x" * 40, max_tokens=1)
        [record] = await proxy.sink.wait()

    losses = {
        attempt.attempt.target.model: attempt.result.loss for attempt in summarize(record).attempts
    }
    assert reply.status == status
    assert (losses[ends], losses[dropped]) == (None, "hedge")
    assert summarize(record).lost_cost == 10 * 150 + 600


async def test_disconnect_stops_both_attempts(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": hang(), "spare": hang()}
    async with resilient_proxy(tmp_path, upstream, HEDGE) as proxy:
        asking = asyncio.ensure_future(ask(proxy))
        async with asyncio.timeout(PATIENCE_S):
            while len(upstream.requests) < 2:
                upstream.arrived.clear()
                await upstream.arrived.wait()
        asking.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(request.closed.wait() for request in upstream.requests))
        [record] = await proxy.sink.wait()

    assert record.outcome == "client_abort"
    assert {result.loss for _, result, _ in summarize(record).attempts} == {"client_left"}


class OpenResponse(HttpUpstreamResponse):
    def __init__(self) -> None:
        self.left = False
        attempt = SimpleNamespace(lost_hedge=False)
        self.open_attempt = SimpleNamespace(attempt=attempt)  # type: ignore[assignment]

    async def __aexit__(self, *error: object) -> None:
        self.left = True


async def test_response_of_a_cancelled_hedge_is_closed() -> None:
    answer, ended = OpenResponse(), asyncio.Event()

    async def first(why: AttemptReason) -> HttpUpstreamResponse:
        try:
            await asyncio.Event().wait()
        finally:  # cancellation is slow
            await ended.wait()
        raise AssertionError

    async def second(why: AttemptReason) -> HttpUpstreamResponse:
        return answer

    hedge = asyncio.ensure_future(open_hedged(first, second, 0.0, lambda: True, has_fallback=True))
    for _ in range(20):  # until the second has won, and the first is being cancelled
        await asyncio.sleep(0)
    hedge.cancel()
    await asyncio.sleep(0)
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await hedge

    assert answer.left
