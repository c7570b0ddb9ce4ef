"""The way of one call. This module alone knows the order of the stages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field
from functools import partial

from proxy.call.record import Record
from proxy.errors import ClientDisconnected, ProxyError, ShuttingDown
from proxy.ports import (
    BudgetCheck,
    Cache,
    CallGuards,
    Emitter,
    Exchange,
    Forwarder,
    Guards,
    Limits,
    Policies,
    Sink,
)
from proxy.relay import relay
from proxy.runtime.frozen import frozen
from proxy.runtime.turn import LoopTurns
from proxy.types import Call, Plan


@frozen
class Pipeline:
    """One collaborator per room, wired once in ``app``."""

    policies: Policies
    limits: Limits
    guards: Guards
    cache: Cache
    upstreams: Forwarder
    emitter: Emitter
    start_record: Callable[[], Record]
    turns: LoopTurns = field(default_factory=LoopTurns)

    async def run(self, client: Exchange) -> None:
        """Carry one call from its head to the upstream, and its answer back.

        What must happen exactly once per call (settle the limits, close the upstream, emit the
        record) is a ``with``: it happens on every way out, be it an answer, a refusal, a failing
        upstream, a client that leaves or a cancellation.
        """
        record = self.start_record()
        with self.emitter.observing(record):  # emit
            record.request_id = client.request_id
            try:
                head = client.read_head()  # accept: the head
                record.set_head(head)
                policies = self.policies  # one revision from here to the end
                policy = await policies.read(head) if head.bypass_cache else policies.active()
                record.revision = policy.revision
                caller = policy.identify(head)  # no body is read before
                record.identify(
                    caller.key, caller.credential, controls_sampling=caller.controls_sampling
                )
                call = record.call = await client.read_call(head, caller.key)  # the body
                plan = record.plan = caller.decide(call)  # identify
                plan.raise_if_refused()  # a rule may say no
                client.keep_alive(record)
                async with self.limits.admit(plan, call, record) as permit:  # later settle
                    gate = self.guards.for_call(plan, call, record)
                    plan, safe = await gate.inspect()  # inspect input
                    if plan.cache is None:
                        await self.forward(permit, plan, safe, gate, record, client)
                    else:
                        forward = partial(self.forward, permit, plan, safe, gate, record)
                        await self.cache.serve(plan, call, record, client, forward)  # else forward
            except ProxyError as error:
                record.fail(error)
                await client.send_error(error, record)
            except asyncio.CancelledError:
                if client.is_complete:
                    raise
                left = ClientDisconnected() if client.is_disconnected else ShuttingDown()
                record.fail(left)
                await client.send_error(left, record)
                raise

    async def forward(
        self,
        permit: BudgetCheck,
        plan: Plan,
        call: Call,
        gate: CallGuards,
        record: Record,
        to: Sink,
    ) -> None:
        """Fetch an answer and hand it on; another one where a guard wants it, which has shown
        nothing then, and does so once. ``to`` is the client, or the cache in its place."""
        permit.require_budget()  # a call over its budget may only get a kept answer
        again = True
        while again:
            try:
                async with await self.upstreams.open(
                    plan, call, record, gate.redact_error
                ) as answer:
                    watch = gate.guard_output(call, answer.head)
                    await to.start(answer.head, record)  # leaves with the first frame
                    await relay(answer, watch, record, to, self.turns)
            except ProxyError as error:
                await gate.redact_error(
                    error
                )  # inspect output: an upstream's words against the call
                raise
            again = watch.retry_requested
            if again:
                record.start_guard_retry()
