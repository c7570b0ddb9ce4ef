"""Forwarding: the request is sent to a target, its answer comes back in OpenAI's form.

The targets of a leg are tried in order until one begins to answer: nothing has reached the client
till then, and afterwards another try would never be safe. Several legs run side by side.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from proxy.attempts import Why
from proxy.dialects import DIALECTS
from proxy.dialects.statuses import meaning_of
from proxy.dialects.upstream_request import build_request
from proxy.errors import (
    BadField,
    CircuitOpen,
    ProxyError,
    UpstreamBusy,
    UpstreamError,
    UpstreamStale,
)
from proxy.frames import let_frames_go
from proxy.frozen import frozen
from proxy.offload import Offload
from proxy.ports import Answer, Review
from proxy.record import Record
from proxy.types import Call, Head, Plan, Target
from proxy.upstream.attempt_context import AttemptContext
from proxy.upstream.failures import most_useful
from proxy.upstream.fan_out import FanOut
from proxy.upstream.forwarded import Forwarded, OpenAttempt, reader_of, shown_of
from proxy.upstream.health import Health
from proxy.upstream.hedge import HedgedRequest
from proxy.upstream.model_list import ModelList
from proxy.upstream.ratelimit import remaining
from proxy.upstream.refusal import refusal
from proxy.upstream.reply import Http, MemoryShare, Reply, Unbounded
from proxy.upstream.retry import next_delay


@frozen
class Upstreams:
    """The upstreams of the policies, behind one client.

    ``via`` marks requests against loops. ``draw`` returns a number from 0 up to 1. ``offload``
    is where large requests are written, and large answers read. ``share`` returns the share of
    memory of an answer that is held as a whole.
    """

    http: Http
    via: str
    new_span_id: Callable[[], str]
    health: Health
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = random.random
    offload: Offload = Offload()  # it is frozen
    share: Callable[[], MemoryShare] = Unbounded

    async def open(self, plan: Plan, call: Call, record: Record, review: Review) -> Answer:
        if plan.listing is not None:
            return ModelList(plan.listing)
        legs = [
            AttemptContext(plan=plan, call=call, record=record, leg=leg)
            for leg in range(len(plan.model_calls))
        ]
        if len(legs) == 1:
            return await self._begin(legs[0])
        begin = [partial(self._begin, context) for context in legs]
        return FanOut(begin, review)

    async def _begin(self, context: AttemptContext) -> Answer:
        """Return the first answer that begins. Raise the most useful failure when none does."""
        leg = context.model_leg
        targets = self.health.least_loaded_first(leg.targets, leg.pool)
        after = context.plan.hedge_after
        if after is None:
            answer = await self._first_of(context, targets, "first")
        else:
            answer = await self._hedged(context, targets, after)
        context.record.serve(context.leg, answer.asked.attempt)
        return answer

    async def _hedged(
        self, context: AttemptContext, targets: Sequence[Target], after: float
    ) -> Forwarded:
        """Ask the next target too when the first is slow; a single target is asked twice."""
        others = targets[1:] or targets
        may = partial(self.health.may_retry, targets[0].upstream)
        hedge = HedgedRequest(after, may, spare=len(targets) > 1)
        first = partial(self._first_of, context, targets[:1])
        return await hedge.run(first, partial(self._first_of, context, others))

    async def _first_of(
        self, context: AttemptContext, targets: Sequence[Target], why: Why
    ) -> Forwarded:
        failures: list[ProxyError] = []
        for target in targets:
            try:
                return await self._patiently(context, target, why)
            except (UpstreamError, BadField) as failure:
                let_frames_go(failure)
                failures.append(failure)
                if failure.final or context.time_left() <= 0:
                    break
            why = "fallback"
        raise most_useful(failures)

    async def _patiently(self, context: AttemptContext, target: Target, why: Why) -> Forwarded:
        """Ask one target, again after failures that the policy says may pass."""
        tries, fresh = 1, False
        while True:
            try:
                return await self._try(context, target, why, fresh=fresh)
            except UpstreamStale:  # nothing was taken, so this is safe, and no try of the policy's
                why, fresh = "retry", True
            except UpstreamError as failure:
                seconds = next_delay(context.plan.retry, failure, tries, self.draw)
                if seconds is None or seconds >= context.time_left():
                    raise
                if not self.health.may_retry(target.upstream):
                    raise
                let_frames_go(failure)
                await self.sleep(seconds)
                why, tries = "retry", tries + 1

    async def _try(
        self, context: AttemptContext, target: Target, why: Why, *, fresh: bool
    ) -> Forwarded:
        """Ask one target; return its answer once its first chunk is there."""
        call, record = context.call, context.record
        asks, spoken = DIALECTS[call.head.dialect], DIALECTS[target.upstream.dialect]
        written = partial(
            build_request, call, target, asks, spoken, context.model_leg.changes_for(target)
        )
        request = await self.offload.run(call.size, written, call.caller)
        record.warn(f"{name} dropped" for name in request.dropped)
        try:
            slot = self.health.take(target, request.endpoint, call.caller)
        except (CircuitOpen, UpstreamBusy) as skipped:
            record.skip(target, skipped.code)
            raise
        attempt = record.attempt(target, context.leg, self.new_span_id(), why)
        attempt.most_answered = request.most_answered
        asked = OpenAttempt(
            call=call,
            target=target,
            request=request,
            attempt=attempt,
            record=record,
            slot=slot,
        )
        reply: Reply | None = None
        try:
            reply = await self._post(asked, context.time_left(), fresh=fresh)
            return await self._answer(asked, reply, kept=context.plan.guards.keeps_answers)
        except BaseException as error:  # noqa: BLE001  # noted, and raised again
            if reply is not None:
                await reply.__aexit__(type(error), error, error.__traceback__)
            try:
                raise asked.fail(error) from None  # a name for it would tie it to this frame
            finally:
                asked.leave()

    async def _post(self, asked: OpenAttempt, left: float, *, fresh: bool) -> Reply:
        upstream = asked.target.upstream
        via = ", ".join((*asked.call.head.via, self.via))
        headers = {**asked.request.headers, "x-headrace-via": via}
        if upstream.propagate_trace:
            span = asked.attempt.span_id
            headers["traceparent"] = f"00-{asked.record.ids.trace_id}-{span}-01"
        streamed = asked.call.stream and DIALECTS[upstream.dialect].server.streams
        limits = upstream.timeouts.within(left, streamed=streamed)
        url, body = asked.request.url, asked.request.body
        reply = await self.http.post(url, headers, body, limits, asked.sent, fresh=fresh)
        asked.attempt.status = reply.status
        asked.attempt.left = remaining(reply.headers)
        return reply

    async def _answer(self, asked: OpenAttempt, reply: Reply, *, kept: bool) -> Forwarded:
        """Return an answer that has begun: from then on it owns the reply. One that is whole, or is
        ``kept`` to its end, has a share of the memory for answers."""
        server = DIALECTS[asked.target.upstream.dialect].server
        meaning = meaning_of(server.statuses, reply.status)
        if meaning not in ("answer", "flagged"):
            raise await refusal(reply, asked.target.upstream)
        head = Head(asked.call.stream, shown_of(asked, reply), flagged=meaning == "flagged")
        reader = reader_of(asked, reply)
        share = self.share() if kept or reader.holds else Unbounded()
        share.charge_to(asked.call.caller)
        answer = Forwarded(
            head=head,
            reply=reply,
            reader=reader,
            asked=asked,
            offload=self.offload,
            share=share,
        )
        asked.attempt.began = asked.record.now()
        return await answer.begin()
