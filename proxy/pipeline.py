"""Runs one call. This is the only module that knows the order of the stages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field
from functools import partial

from proxy import ports
from proxy.call.record import Record
from proxy.errors import ClientDisconnected, ProxyError, ShuttingDown
from proxy.relay import relay
from proxy.runtime.fair_queue import TimeSlices
from proxy.runtime.frozen import frozen
from proxy.types import Call, Plan


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
    turns: TimeSlices = field(default_factory=TimeSlices)

    async def run(self, client: ports.Exchange) -> None:
        """Serve one call from its request head to the end of its response.

        Work that must happen exactly once (settle limits, close the upstream, emit the record) is
        a ``with`` block: it also runs after an error, a disconnected client and a cancellation.
        """
        record = self.start_record()
        with self.emitter.observing(record):
            record.request_id = client.request_id
            try:
                head = client.read_head()
                record.set_head(head)
                policies = self.policies
                policy = await policies.read(head) if head.bypass_cache else policies.active()
                record.revision = policy.revision
                caller = policy.identify(head)  # authenticate before the body is read
                record.identify(
                    caller.key, caller.credential, controls_sampling=caller.controls_sampling
                )
                call = record.call = await client.read_call(head, caller.key)
                plan = record.plan = caller.decide(call)
                plan.raise_if_refused()
                client.keep_alive(record)
                async with self.limits.admit(plan, call, record) as budget:
                    guards = self.guards.for_call(plan, call, record)
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
                if client.is_complete:
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

        Ask once more if an output guard requests a retry; then nothing was relayed yet.
        """
        budget.require_budget()
        retry = True
        while retry:
            try:
                async with await self.upstreams.open(
                    plan, call, record, guards.redact_error
                ) as response:
                    output_guards = guards.guard_output(call, response.head)
                    await sink.start(response.head, record)
                    await relay(response, output_guards, record, sink, self.turns)
            except ProxyError as error:
                await guards.redact_error(error)
                raise
            retry = output_guards.retry_requested
            if retry:
                record.start_guard_retry()
