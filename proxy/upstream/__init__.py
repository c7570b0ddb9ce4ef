"""Sends calls to upstreams. Tries the targets of a model call in order until one responds.

Nothing reaches the client before a response has begun. Afterwards no other target is tried. If a
call requests several models, their model calls run in parallel.
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
from proxy.dialects import DIALECTS, STATEFUL_ENDPOINTS
from proxy.dialects.requests.state_request import build_state_request
from proxy.dialects.requests.upstream_request import UpstreamRequest, build_request
from proxy.errors import InvalidField, NotSent, ProxyError, StaleConnection, UpstreamError
from proxy.ports import RedactError, UpstreamResponse
from proxy.runtime.deferred_free import drop_tracebacks
from proxy.runtime.fair_queue import LARGE_BYTES, Offload, PauseScheduler
from proxy.runtime.frozen import frozen
from proxy.types import Call, Plan, ResponseHead, Target
from proxy.upstream import passthrough
from proxy.upstream.attempt import (
    AttemptContext,
    OpenAttempt,
    make_reader,
    read_remaining_rate_limit,
    select_client_headers,
)
from proxy.upstream.errors import (
    choose_most_useful_error,
    compute_retry_delay,
    is_surely_unprocessed,
    read_error,
)
from proxy.upstream.health import Health
from proxy.upstream.local_responses import (
    COUNT_ESTIMATED,
    DOCUMENT_HEAD,
    LocalResponse,
    build_token_estimate_body,
    is_counted_locally,
    list_models,
)
from proxy.upstream.parallel import FramePerModelResponse, open_hedged
from proxy.upstream.reply import Http, MemoryShare, Reply
from proxy.upstream.response import ClaimBackgroundBill, HttpUpstreamResponse

if TYPE_CHECKING:
    from proxy.dialects.responses.sealing import IdSealer

RESPONSE_HEADS = {False: DOCUMENT_HEAD, True: ResponseHead(streamed=True)}
"""Response heads without headers, one for streams and one for documents."""


@frozen
class Upstreams:
    """A ``Forwarder`` over one HTTP client.

    - ``via``: value of the header that detects loops.
    - ``random``: returns a number from 0 to 1, which jitters retries.
    - ``offload``: writes large requests and reads large responses in a thread.
    - ``new_share``: starts to count a caller's memory for a response that is held as a whole. None
      if such memory is not counted.
    - ``ids``: seals the ids of objects that providers store.
    - ``claim_background_bill``: decides which call pays for a background response.
    """

    http: Http
    via: str
    health: Health
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    offload: Offload = Offload()  # immutable
    new_share: Callable[[str], MemoryShare] | None = None
    pause_scheduler: PauseScheduler = field(default_factory=PauseScheduler)
    ids: IdSealer | None = None
    claim_background_bill: ClaimBackgroundBill | None = None

    def open(
        self, plan: Plan, call: Call, record: Record, redact_error: RedactError
    ) -> Awaitable[UpstreamResponse]:
        if len(plan.model_calls) == 1 and call.head.endpoint != "count_tokens":
            return self._open_model_call(plan, call, record, 0)
        return self._open_local_or_parallel(plan, call, record, redact_error)

    async def _open_local_or_parallel(
        self, plan: Plan, call: Call, record: Record, redact_error: RedactError
    ) -> UpstreamResponse:
        """Return the model list, a token count, or the responses of several model calls."""
        if plan.model_list is not None:
            is_list = call.head.get_url_parameter("model") is None
            return LocalResponse(partial(list_models, plan.model_list, is_list=is_list))
        if is_counted_locally(plan, call):
            record.add_warnings([COUNT_ESTIMATED])
            return LocalResponse(partial(build_token_estimate_body, call, self.offload))
        if len(plan.model_calls) == 1:
            return await self._open_model_call(plan, call, record, 0)
        indexes = range(len(plan.model_calls))
        openers = [partial(self._open_model_call, plan, call, record, index) for index in indexes]
        return FramePerModelResponse(openers, redact_error, DOCUMENT_HEAD)

    def _open_model_call(
        self, plan: Plan, call: Call, record: Record, model_call_index: int
    ) -> Awaitable[HttpUpstreamResponse]:
        """Try the targets of a model call, and return the first response that begins.

        If all fail, raise the most useful failure.
        """
        model_call = plan.model_calls[model_call_index]
        context = AttemptContext(plan, call, record, index=model_call_index, model_call=model_call)
        targets = model_call.targets
        if model_call.pool_size > 1:
            targets = self.health.sort_pool_by_load(targets, model_call.pool_size)
        if plan.hedge_after is None:
            return self._try_targets(context, targets, "first")
        return self._open_hedged(context, targets, plan.hedge_after)

    async def _open_hedged(
        self, context: AttemptContext, targets: Sequence[Target], delay_s: float
    ) -> HttpUpstreamResponse:
        """Send a second request to the next target, or to the only one, if the first is slow."""
        may_hedge = partial(self.health.try_spend_retry, targets[0].upstream)
        has_fallback = len(targets) > 1
        open_first = partial(self._try_targets, context, targets[:1])
        open_second = partial(self._try_targets, context, targets[1:] or targets)
        try:
            response = await open_hedged(
                open_first, open_second, delay_s, may_hedge, has_fallback=has_fallback
            )
        except ProxyError:  # the deadline of the call may have ended the attempt
            context.record.mark_canceled_as_lost_hedges(context.index)
            raise
        context.record.use_attempt(context.index, response.open_attempt.attempt)
        return response

    async def _try_targets(
        self, context: AttemptContext, targets: Sequence[Target], reason: AttemptReason
    ) -> HttpUpstreamResponse:
        failures: list[ProxyError] = []
        call = context.call
        needs_fresh = call.head.endpoint in STATEFUL_ENDPOINTS and call.creates_state
        index, attempts, new_connection = 0, 1, needs_fresh
        while True:
            target = targets[index]
            try:
                return await self._try_once(context, target, reason, new_connection=new_connection)
            except StaleConnection:  # nothing was received, so this does not count as a retry
                reason, new_connection = "retry", True
                continue
            except (UpstreamError, InvalidField) as failure:
                delay_s = self._claim_retry(context, target, failure, attempts)
                drop_tracebacks(failure)
                if delay_s is None:
                    failures.append(failure)
            if delay_s is not None:
                await self.sleep(delay_s)
                reason, attempts = "retry", attempts + 1
                continue
            index, reason, attempts, new_connection = index + 1, "fallback", 1, needs_fresh
            is_over = context.compute_time_left_s() <= 0 or index == len(targets)
            if failures[-1].is_final or is_over or not _may_resend(context, failures[-1]):
                raise choose_most_useful_error(failures)

    def _claim_retry(
        self, context: AttemptContext, target: Target, failure: ProxyError, attempts: int
    ) -> float | None:
        """Return the seconds before a retry of the target, None for no retry. Spends a retry."""
        delay_s = compute_retry_delay(context.plan.retry, failure, attempts, self.random)
        if (
            delay_s is None
            or not _may_resend(context, failure)
            or delay_s >= context.compute_time_left_s()
        ):
            return None
        return delay_s if self.health.try_spend_retry(target.upstream) else None

    async def _try_once(
        self,
        context: AttemptContext,
        target: Target,
        reason: AttemptReason,
        *,
        new_connection: bool,
    ) -> HttpUpstreamResponse:
        """Send a request to a target. Return its response once it has content."""
        call, record = context.call, context.record
        if call.size <= LARGE_BYTES:
            request = _build_request(context, target)
        else:
            build = partial(_build_request, context, target)
            request = await self.offload.run(call.size, build, call.scheduling_key)
        if request.dropped_fields or request.default_fields:
            dropped = [f"{name} dropped" for name in request.dropped_fields]
            record.add_warnings([*dropped, *(f"{name} assumed" for name in request.default_fields)])
        open_attempt = self._start_attempt(context, target, request, reason)
        attempt = open_attempt.attempt
        reply: Reply | None = None
        try:
            reply = await self._send(
                open_attempt, context.compute_time_left_s(), new_connection=new_connection
            )
            attempt.status = reply.status
            attempt.remaining = read_remaining_rate_limit(reply.headers)
            response = self._make_response(context, open_attempt, reply)
            if response is None:
                await _raise_error(open_attempt, reply)
            attempt.response_at = record.now()
            await response.wait_for_content()
        except BaseException as error:  # noqa: BLE001  # recorded and raised
            if reply is not None:
                reply.release()
            try:
                raise open_attempt.fail(error) from None  # a variable would make a cycle
            finally:
                open_attempt.finish_attempt()
        if context.plan.hedge_after is None:  # otherwise the winner is not known yet
            record.use_attempt(context.index, attempt)
        return response

    def _start_attempt(
        self,
        context: AttemptContext,
        target: Target,
        request: UpstreamRequest,
        reason: AttemptReason,
    ) -> OpenAttempt:
        """Take a slot and start an attempt.

        Raises ``NotSent``, and records it.
        """
        call, record = context.call, context.record
        try:
            slot = self.health.take_slot(target, request.endpoint, call.scheduling_key)
        except NotSent as error:
            record.add_skip(target, error.code)
            raise
        attempt = record.start_attempt(target, context.index, reason)
        attempt.max_output_tokens = request.max_output_tokens
        if request.endpoint == "passthrough":
            attempt.meter = passthrough.make_reported_usage_meter(request.method)
        return OpenAttempt(call, target, request, attempt=attempt, record=record, slot=slot)

    def _send(
        self, open_attempt: OpenAttempt, timeout_s: float, *, new_connection: bool
    ) -> Awaitable[Reply]:
        request, upstream = open_attempt.request, open_attempt.target.upstream
        call = open_attempt.call
        via = ", ".join((*call.head.via, self.via))
        headers = {**request.headers, "x-headrace-via": via}
        if upstream.propagate_trace:
            span_id = open_attempt.attempt.span_id
            headers["traceparent"] = f"00-{open_attempt.record.ids.trace_id}-{span_id}-01"
        streamed = request.endpoint == "passthrough" or (
            call.stream and DIALECTS[upstream.dialect].server.can_stream
        )
        return self.http.request(
            request.url,
            headers,
            request.body if request.upload is None else request.upload,
            upstream.timeouts.make_request_timeouts(timeout_s, streamed=streamed),
            open_attempt.on_sent,
            new_connection=new_connection or request.needs_new_connection,
            method=request.method,
        )

    def _make_response(
        self, context: AttemptContext, open_attempt: OpenAttempt, reply: Reply
    ) -> HttpUpstreamResponse | None:
        """Return the response, or None if the upstream reports an error.

        A response that is held as a whole is charged to the memory for responses.
        """
        call = open_attempt.call
        streamed, endpoint = call.stream, call.head.endpoint
        if open_attempt.request.endpoint == "passthrough":
            passthrough_head = passthrough.build_success_head(open_attempt, reply)
            if passthrough_head is None:
                return None
            head = passthrough_head
            reader = passthrough.make_reader(open_attempt, head)
            is_held = reader.buffers_whole_body
        else:
            statuses = DIALECTS[open_attempt.target.upstream.dialect].server.statuses
            meaning = statuses.get(reply.status)
            if meaning not in ("answer", "flagged"):
                return None
            is_flagged, headers = meaning == "flagged", select_client_headers(open_attempt, reply)
            reader = make_reader(open_attempt, reply, self.ids)
            head = RESPONSE_HEADS[streamed]
            if headers or is_flagged:
                head = replace(head, headers=headers, is_flagged=is_flagged)
            is_repeated = endpoint == "responses"  # the last event repeats the response
            is_inspected = context.plan.guards.needs_whole_response
            is_held = reader.buffers_whole_body or is_repeated or is_inspected
        share = None
        if is_held and self.new_share is not None:
            share = self.new_share(call.scheduling_key)
        is_stored = endpoint in STATEFUL_ENDPOINTS and not streamed
        return HttpUpstreamResponse(
            head,
            reply,
            reader,
            open_attempt=open_attempt,
            offload=self.offload,
            share=share,
            pause_scheduler=self.pause_scheduler,
            claim_background_bill=self.claim_background_bill if is_stored else None,
        )


async def _raise_error(open_attempt: OpenAttempt, reply: Reply) -> NoReturn:
    error = await read_error(reply, open_attempt.target.upstream)
    error.headers = select_client_headers(open_attempt, reply)
    raise error


def _may_resend(context: AttemptContext, failure: ProxyError) -> bool:
    """Return True if a failed call may be sent again, to any target."""
    path = context.plan.passthrough
    if path is not None:
        return passthrough.may_repeat(context, path, failure)
    return not context.call.creates_state or is_surely_unprocessed(failure, context.record.attempts)


def _build_request(context: AttemptContext, target: Target) -> UpstreamRequest:
    """Return the request for a target. Raises ``InvalidField``."""
    call = context.call
    if call.head.passthrough is not None:
        return passthrough.build_request(context, target)
    if call.head.endpoint in ("stored", "conversations"):
        return build_state_request(call, target)
    overrides = context.model_call.get_overrides(target)
    return build_request(call, target, overrides)
