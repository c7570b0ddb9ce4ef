"""The way of one call. This module alone knows the order of the stages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field
from functools import partial

from proxy.call.record import Record
from proxy.errors import ClientGone, ProxyError, Stopping
from proxy.ports import (
    Cache,
    Emitter,
    Exchange,
    Forwarding,
    Gate,
    Guards,
    Limits,
    Permit,
    Policies,
    Shown,
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
    upstreams: Forwarding
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
                record.join(head)
                policies = self.policies  # one revision from here to the end
                policy = await policies.read(head) if head.refresh else policies.in_force_now()
                record.revision = policy.revision
                caller = policy.identify(head)  # no body is read before
                record.identify(caller.key, caller.credential, may_trace=caller.may_trace)
                call = record.call = await client.read_call(head, caller.key)  # the body
                plan = record.plan = caller.decide(call)  # identify
                plan.permit()  # a rule may say no
                client.keep_alive(record)
                async with self.limits.admit(plan, call, record) as permit:  # later settle
                    gate = self.guards.gate(plan, call, record)
                    plan, safe = await gate.inspect()  # inspect input
                    if plan.cache is None:
                        await self.forward(permit, plan, safe, gate, record, client)
                    else:
                        forward = partial(self.forward, permit, plan, safe, gate, record)
                        await self.cache.serve(plan, call, record, client, forward)  # else forward
            except ProxyError as error:
                record.fail(error)
                await client.refuse(error, record)
            except asyncio.CancelledError:
                if client.served:
                    raise
                left = ClientGone() if client.gone else Stopping()
                record.fail(left)
                await client.refuse(left, record)
                raise

    async def forward(
        self, permit: Permit, plan: Plan, call: Call, gate: Gate, record: Record, to: Shown
    ) -> None:
        """Fetch an answer and hand it on; another one where a guard wants it, which has shown
        nothing then, and does so once. ``to`` is the client, or the cache in its place."""
        permit.require_budget()  # a call over its budget may only get a kept answer
        again = True
        while again:
            try:
                async with await self.upstreams.open(plan, call, record, gate.review) as answer:
                    watch = gate.watch(call, answer.head)
                    await to.begin(answer.head, record)  # leaves with the first frame
                    await relay(answer, watch, record, to, self.turns)
            except ProxyError as error:
                await gate.review(error)  # inspect output: an upstream's words against the call
                raise
            again = watch.again
            if again:
                record.ask_again()
