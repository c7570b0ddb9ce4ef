"""Forwarding: the request is sent to a target, its answer comes back in OpenAI's form.

The targets of a leg are tried in order until one begins to answer: nothing has reached the client
till then, and afterwards another try would never be safe. Several legs run side by side.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from proxy.call.attempts import AttemptReason
from proxy.call.record import Record
from proxy.dialects import DIALECTS, LEANING
from proxy.dialects.statuses import meaning_of
from proxy.dialects.upstream_request import UpstreamRequest, build_request
from proxy.errors import (
    CircuitOpen,
    InvalidField,
    ProxyError,
    StaleConnection,
    UpstreamBusy,
    UpstreamError,
)
from proxy.ports import BillingRegistry, Review, UpstreamResponse
from proxy.runtime.freed import drop_tracebacks
from proxy.runtime.frozen import frozen
from proxy.runtime.offload import LARGE_BYTES, Offload
from proxy.runtime.turn import LoopTurns
from proxy.types import Call, Plan, ResponseHead, Target
from proxy.upstream.answer_reader import reader_of, remaining, shown_of
from proxy.upstream.fan_out import FanOut
from proxy.upstream.forwarded import HttpUpstreamResponse, OpenAttempt, Settle
from proxy.upstream.health import Health
from proxy.upstream.hedge import HedgedRequest
from proxy.upstream.local_responses import (
    ESTIMATED,
    LocalResponse,
    count_tokens,
    is_counted_here,
    list_models,
)
from proxy.upstream.refusal import refusal
from proxy.upstream.reply import Http, MemoryShare, Reply
from proxy.upstream.retry import AttemptContext, is_untaken, most_useful, next_delay

if TYPE_CHECKING:
    from proxy.dialects.responses.sealing import ResponseIds


@frozen
class Upstreams:
    """The upstreams of the policies, behind one client.

    ``via`` marks requests against loops. ``draw`` returns a number from 0 up to 1. ``offload``
    is where large requests are written, and large answers read. ``share`` returns the share of
    memory of an answer that is held as a whole; without it nobody counts that. Who has read much
    of a stream rests among ``turns``. ``ids`` seals those of what providers keep; ``settlements``
    know which call is billed for one that was made in the background.
    """

    http: Http
    via: str
    new_span_id: Callable[[], str]
    health: Health
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    draw: Callable[[], float] = random.random
    offload: Offload = Offload()  # it is frozen
    share: Callable[[], MemoryShare] | None = None
    turns: LoopTurns = field(default_factory=LoopTurns)
    ids: ResponseIds | None = None
    settlements: BillingRegistry | None = None

    def open(
        self, plan: Plan, call: Call, record: Record, review: Review
    ) -> Awaitable[UpstreamResponse]:
        if len(plan.model_calls) == 1 and call.head.endpoint != "count_tokens":
            return self._begin(plan, call, record, 0)
        return self._open(plan, call, record, review)

    async def _open(
        self, plan: Plan, call: Call, record: Record, review: Review
    ) -> UpstreamResponse:
        """Return what is no answer of one upstream: that of policy itself, or of several."""
        if plan.model_list is not None:
            is_list = call.head.parameter("model") is None
            return LocalResponse(partial(list_models, plan.model_list, is_list=is_list))
        if is_counted_here(plan, call):
            record.warn([ESTIMATED])
            return LocalResponse(partial(count_tokens, call, self.offload))
        if len(plan.model_calls) == 1:
            return await self._begin(plan, call, record, 0)
        begin = [
            partial(self._begin, plan, call, record, leg) for leg in range(len(plan.model_calls))
        ]
        return FanOut(begin, review, HEADS[False])

    def _begin(
        self, plan: Plan, call: Call, record: Record, leg: int
    ) -> Awaitable[HttpUpstreamResponse]:
        """Return the first answer that begins. Raise the most useful failure when none does."""
        model_leg = plan.model_calls[leg]
        context = AttemptContext(plan=plan, call=call, record=record, leg=leg, model_leg=model_leg)
        targets = model_leg.targets
        if model_leg.pool_size > 1:
            targets = self.health.least_loaded_first(targets, model_leg.pool_size)
        if plan.hedge_after is None:
            return self._first_of(context, targets, "first")
        return self._hedged(context, targets, plan.hedge_after)

    async def _hedged(
        self, context: AttemptContext, targets: Sequence[Target], after: float
    ) -> HttpUpstreamResponse:
        """Ask the next target too when the first is slow; a single target is asked twice."""
        others = targets[1:] or targets
        may = partial(self.health.may_retry, targets[0].upstream)
        hedge = HedgedRequest(after, may, spare=len(targets) > 1)
        first = partial(self._first_of, context, targets[:1])
        try:
            answer = await hedge.run(first, partial(self._first_of, context, others))
        except ProxyError:  # the end of one attempt may be that of the call
            context.record.lose_dropped(context.leg)
            raise
        context.record.use_attempt(context.leg, answer.asked.attempt)
        return answer

    async def _first_of(
        self, context: AttemptContext, targets: Sequence[Target], why: AttemptReason
    ) -> HttpUpstreamResponse:
        """Ask target by target, each again after failures that the policy says may pass."""
        failures: list[ProxyError] = []
        once = context.call.head.endpoint in LEANING and context.call.creates_state
        at, tries, fresh = 0, 1, once
        while True:
            target = targets[at]
            try:
                return await self._try(context, target, why, fresh=fresh)
            except (
                StaleConnection
            ):  # nothing was taken, so this is safe, and no try of the policy's
                why, fresh = "retry", True
                continue
            except (UpstreamError, InvalidField) as failure:
                seconds = self._delay(context, target, failure, tries)
                drop_tracebacks(failure)
                if seconds is None:
                    failures.append(failure)
            if seconds is not None:
                await self.sleep(seconds)
                why, tries = "retry", tries + 1
                continue
            at, why, tries, fresh = at + 1, "fallback", 1, once
            if failures[-1].is_final or context.time_left() <= 0 or at == len(targets):
                raise most_useful(failures)
            if not _is_safe_again(context, failures[-1]):
                raise most_useful(failures)

    def _delay(
        self, context: AttemptContext, target: Target, failure: ProxyError, tries: int
    ) -> float | None:
        """Return the seconds after which a target is asked again, None where it is not."""
        seconds = next_delay(context.plan.retry, failure, tries, self.draw)
        if seconds is None or not _is_safe_again(context, failure):
            return None
        if seconds >= context.time_left():
            return None
        return seconds if self.health.may_retry(target.upstream) else None

    async def _try(
        self, context: AttemptContext, target: Target, why: AttemptReason, *, fresh: bool
    ) -> HttpUpstreamResponse:
        """Ask one target; return its answer once its first frame is there."""
        call = context.call
        if call.size <= LARGE_BYTES:
            request = _written(context, target)
        else:
            written = partial(_written, context, target)
            request = await self.offload.run(call.size, written, call.scheduling_key)
        if request.dropped or request.assumed:
            context.record.warn(_warnings(request))
        asked = self._take_place(context, target, request, why)
        attempt = asked.attempt
        reply: Reply | None = None
        try:
            reply = await self._send(asked, context.time_left(), fresh=fresh)
            attempt.status = reply.status
            attempt.remaining = remaining(reply.headers)
            answer = self._answer(context, asked, reply)
            if answer is None:
                await _refuse(asked, reply)
            attempt.response_at = asked.record.now()
            await answer.begin()
        except BaseException as error:  # noqa: BLE001  # noted, and raised again
            if reply is not None:
                reply.leave()
            try:
                raise asked.fail(error) from None  # a name for it would tie it to this frame
            finally:
                asked.leave()
        if context.plan.hedge_after is None:  # of a hedge it is not known yet who wins
            asked.record.use_attempt(context.leg, attempt)
        return answer

    def _take_place(
        self, context: AttemptContext, target: Target, request: UpstreamRequest, why: AttemptReason
    ) -> OpenAttempt:
        """Begin an attempt. Raise ``CircuitOpen`` or ``UpstreamBusy``, once that is noted."""
        call, record = context.call, context.record
        try:
            slot = self.health.take(target, request.endpoint, call.scheduling_key)
        except (CircuitOpen, UpstreamBusy) as skipped:
            record.add_skip(target, skipped.code)
            raise
        attempt = record.start_attempt(target, context.leg, self.new_span_id(), why)
        attempt.most_answered = request.most_answered
        if request.endpoint == "passthrough":
            from proxy.upstream import passed  # noqa: PLC0415  # few calls are such

            attempt.meter = passed.new_meter(request.method)
        return OpenAttempt(
            call=call, target=target, request=request, attempt=attempt, record=record, slot=slot
        )

    def _send(self, asked: OpenAttempt, time_left: float, *, fresh: bool) -> Awaitable[Reply]:
        """Send a request; return its reply once the head of that is there."""
        request, upstream, on_sent = asked.request, asked.target.upstream, asked.sent
        headers = self._headers(asked)
        is_passed = request.endpoint == "passthrough"
        streamed = is_passed or (asked.call.stream and DIALECTS[upstream.dialect].server.streams)
        timeouts = upstream.timeouts.within(time_left, streamed=streamed)
        return self.http.post(
            request.url,
            headers,
            request.body if request.upload is None else request.upload,
            timeouts,
            on_sent,
            fresh=fresh or request.fresh,
            method=request.method,
        )

    def _headers(self, asked: OpenAttempt) -> dict[str, str]:
        via = asked.call.head.via
        headers = {
            **asked.request.headers,
            "x-headrace-via": ", ".join((*via, self.via)) if via else self.via,
        }
        if asked.target.upstream.propagate_trace:
            span = asked.attempt.span_id
            headers["traceparent"] = f"00-{asked.record.ids.trace_id}-{span}-01"
        return headers

    def _answer(
        self, context: AttemptContext, asked: OpenAttempt, reply: Reply
    ) -> HttpUpstreamResponse | None:
        """Return the answer that a reply is, None where it is a refusal. One that is whole, is kept
        to its end, or is said again there, has a share of the memory for answers. Bytes of a
        passthrough response take no such memory."""
        streamed, endpoint = asked.call.stream, asked.call.head.endpoint
        if asked.request.endpoint == "passthrough":
            from proxy.upstream import passed  # noqa: PLC0415  # few calls are such

            head = passed.head_of(asked, reply)
            if head is None:
                return None
            reader = passed.reader_of(asked, head)
            is_held = reader.holds
        else:
            statuses = DIALECTS[asked.target.upstream.dialect].server.statuses
            meaning = meaning_of(statuses, reply.status)
            if meaning not in ("answer", "flagged"):
                return None
            flagged, shown = meaning == "flagged", shown_of(asked, reply)
            reader = reader_of(asked, reply, self.ids)
            head = HEADS[streamed]
            if shown or flagged:
                head = replace(head, headers=shown, is_flagged=flagged)
            is_repeated = endpoint == "responses"
            is_held = reader.holds or is_repeated or context.plan.guards.keeps_answers
        share = None
        if is_held and self.share is not None:
            share = self.share()
            share.charge_to(asked.call.scheduling_key)
        return HttpUpstreamResponse(
            head=head,
            reply=reply,
            reader=reader,
            asked=asked,
            offload=self.offload,
            share=share,
            turns=self.turns,
            settle=self._settling() if endpoint in LEANING and not streamed else None,
        )

    def _settling(self) -> Settle | None:
        """Return what finds who is billed for an answer; None where it is the call that gets it."""
        if self.ids is None or self.settlements is None:
            return None
        from proxy.upstream.background_responses import BackgroundBilling  # noqa: PLC0415  # few

        return BackgroundBilling(self.settlements, self.ids).settle


async def _refuse(asked: OpenAttempt, reply: Reply) -> NoReturn:
    """Raise the error for a reply that is no answer."""
    refused = await refusal(reply, asked.target.upstream)
    refused.headers = shown_of(asked, reply)
    raise refused


def _is_safe_again(context: AttemptContext, failure: ProxyError) -> bool:
    """True if a call that has failed may be sent once more, as all may that only ask."""
    path = context.plan.passed
    if path is not None:
        from proxy.upstream import passed  # noqa: PLC0415  # few calls are such

        return passed.is_safe_again(context, path, failure)
    return not context.call.creates_state or is_untaken(failure, context.record.attempts)


def _warnings(request: UpstreamRequest) -> list[str]:
    """Return what a client is told of its request as the upstream gets it."""
    assumed = [f"{each} assumed" for each in request.assumed]
    return [*(f"{name} dropped" for name in request.dropped), *assumed]


def _written(context: AttemptContext, target: Target) -> UpstreamRequest:
    """Return the call as a target wants it. Raise ``InvalidField``."""
    call = context.call
    if call.head.passthrough is not None:
        from proxy.upstream import passed  # noqa: PLC0415  # few calls are such

        return passed.request_of(context, target)
    asks, spoken = DIALECTS[call.head.dialect], DIALECTS[target.upstream.dialect]
    if call.head.endpoint == "stored":
        from proxy.dialects.stored_request import build_stored_request  # noqa: PLC0415  # few are

        return build_stored_request(call, target, spoken)
    if call.head.endpoint == "conversations":
        from proxy.dialects.stored_request import (  # noqa: PLC0415  # as above
            build_conversation_request,
        )

        return build_conversation_request(call, target, spoken)
    return build_request(call, target, asks, spoken, context.model_leg.overrides_for(target))


HEADS = {streamed: ResponseHead(streamed) for streamed in (False, True)}
"""Those of answers of which there is nothing else to say."""
