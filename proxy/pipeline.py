"""Runs one call: the order of its stages, and the relay of its response to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import field
from functools import partial
from typing import Any

from proxy import ports
from proxy.call.record import Record
from proxy.errors import ClientDisconnected, ProxyError, ShuttingDown, UpstreamError
from proxy.runtime.fair_queue import PauseScheduler, TimeSlice
from proxy.runtime.frozen import frozen
from proxy.types import Call, Plan
from proxy.types.events import Frame

SEND_BATCH_SIZE = 64


@frozen
class Pipeline:
    """The stages of a call, one collaborator each. ``app`` builds them."""

    policies: ports.Policies
    limits: ports.Limits
    guards: ports.Guards
    cache: ports.Cache
    upstreams: ports.Forwarder
    emitter: ports.Emitter
    start_record: Callable[[], Record]
    pause_scheduler: PauseScheduler = field(default_factory=PauseScheduler)

    async def run(self, client: ports.Exchange) -> None:
        """Serve one call from its request head to the end of its response.

        Work that must happen exactly once (settle limits, close the upstream, emit the record) is
        a ``with`` block: it also runs after an error, a disconnected client and a cancellation.
        """
        record = self.start_record()
        with self.emitter.emit_on_exit(record):
            record.request_id = client.request_id
            try:
                head = client.read_head()
                record.set_head(head)
                policies = self.policies
                policy = (
                    await policies.reload_if_requested(head)
                    if head.bypass_cache
                    else policies.get_active_policy()
                )
                record.revision = policy.revision
                caller = policy.identify(head)  # authenticate before the body is read
                record.identify(
                    caller.key, caller.credential, controls_sampling=caller.controls_sampling
                )
                call = record.call = await client.read_call(head, caller.key)
                plan = record.plan = caller.decide(call)
                plan.raise_if_refused()
                client.start_keepalive(record)
                async with self.limits.make_reservation(plan, call, record) as budget:
                    guards = self.guards.build_call_guards(plan, call, record)
                    plan, safe_call = await guards.inspect()
                    fetch = partial(self.forward, budget, plan, safe_call, guards, record)
                    if plan.cache is None:
                        await fetch(client)
                    else:
                        await self.cache.serve(plan, call, record, client, fetch)
            except ProxyError as error:
                record.fail(error)
                await client.send_error(error, record)
            except asyncio.CancelledError:
                if client.is_response_complete:
                    raise
                cause = ClientDisconnected() if client.is_disconnected else ShuttingDown()
                record.fail(cause)
                await client.send_error(cause, record)
                raise

    async def forward(
        self,
        budget: ports.BudgetCheck,
        plan: Plan,
        call: Call,
        guards: ports.CallGuards,
        record: Record,
        sink: ports.Sink,
    ) -> None:
        """Fetch a response and relay it to ``sink``: the client, or the cache on its behalf.

        If an output guard requests a retry, fetch another response. No frame was relayed before.
        """
        budget.raise_deferred_refusal()
        retry = True
        while retry:
            try:
                async with await self.upstreams.open(
                    plan, call, record, guards.redact_error
                ) as response:
                    output_guards = guards.build_output_guards(call, response.head)
                    await sink.set_response_head(response.head, record)
                    await relay(response, output_guards, record, sink, self.pause_scheduler)
            except ProxyError as error:
                await guards.redact_error(error)
                raise
            retry = output_guards.is_retry_requested
            if retry:
                record.start_guard_retry()


class RetryRequested(Exception):
    """Raised when an output guard requests another response."""


async def relay(
    response: ports.UpstreamResponse,
    guards: ports.OutputGuards,
    record: Record,
    client: ports.Sink,
    pause_scheduler: PauseScheduler,
) -> None:
    """Relay all frames of a response. Frames that arrive together are sent together.

    Returns early if a guard requests another response (``guards.is_retry_requested``).

    Raises:
        GuardBlocked: A guard blocks the response. Text that it had cleared was sent.
        UpstreamError: The upstream failed. Text that waited for more context was sent.
    """
    time_slice = TimeSlice(record.now, pause_scheduler, record.key)
    relayed = Relay(guards, record, client, time_slice)
    try:
        async for frames in response.frames(relayed.feed):
            time_slice.start()
            pending = relayed.feed(frames)
            if pending is not None:
                await pending
            if time_slice.is_over():
                await time_slice.pause()
    except RetryRequested:
        return
    except UpstreamError:
        await relayed.send_cleared(guards.release_partial_placeholder())
        raise


class Relay:
    """Relays frames to the client, including frames that arrive while the reading task waits."""

    __slots__ = ("_cleared", "_client", "_guards", "_record", "_time_slice")

    def __init__(
        self, guards: ports.OutputGuards, record: Record, client: ports.Sink, time_slice: TimeSlice
    ) -> None:
        self._guards = guards
        self._record = record
        self._client = client
        self._time_slice = time_slice
        self._cleared: list[Frame] = []

    def feed(self, frames: Sequence[Frame]) -> Coroutine[Any, Any, None] | None:
        """Relay frames. Return an awaitable if guards or the client need time, or on an error."""
        cleared, guards = self._cleared, self._guards
        for index, frame in enumerate(frames):
            self._record.meter_frame(frame)
            try:
                safe_frames = guards.try_inspect(frame)
            except ProxyError as error:
                return self._send_cleared_and_raise(error)
            if safe_frames is None:
                return self._feed_with_waits(frames[index:])
            cleared += safe_frames
        if cleared and not self._client.try_send(cleared):
            return self.send_cleared()
        cleared.clear()
        return None

    async def _feed_with_waits(self, frames: Sequence[Frame]) -> None:
        """Relay frames with waits. The first frame is already metered."""
        guards, safe_frames = self._guards, None
        self._time_slice.start()
        try:
            for index, frame in enumerate(frames):
                if index:
                    self._record.meter_frame(frame)
                    safe_frames = guards.try_inspect(frame)
                if safe_frames is None:
                    safe_frames = await guards.inspect(frame)
                    if guards.is_retry_requested:
                        raise RetryRequested
                    if self._time_slice.is_over():
                        await self._time_slice.pause()
                self._cleared += safe_frames
        except ProxyError:
            await self.send_cleared()
            raise
        await self.send_cleared()

    async def _send_cleared_and_raise(self, error: ProxyError) -> None:
        """Send the frames that were cleared, then raise the error."""
        try:
            await self.send_cleared()
            raise error
        finally:
            del error  # its traceback refers to this frame

    async def send_cleared(self, released: Sequence[Frame] = ()) -> None:
        """Send the frames that were cleared, and then those that a guard releases early."""
        frames, self._cleared = [*self._cleared, *released], []
        for start in range(0, len(frames), SEND_BATCH_SIZE):
            await self._client.send(frames[start : start + SEND_BATCH_SIZE])
            if self._time_slice.is_over():
                await self._time_slice.pause()
