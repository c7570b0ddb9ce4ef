"""The way of one call. This module alone knows the order of the stages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial

from proxy.errors import ClientGone, ProxyError, Stopping, UpstreamError
from proxy.frozen import frozen
from proxy.ports import (
    Answer,
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
    Watch,
)
from proxy.record import Record
from proxy.turn import LoopTurn, LoopTurns
from proxy.types import Call, Chunk, Plan

TOGETHER = 64  # chunks that are handed on in one go


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
                    watch = gate.watch(call)
                    await to.begin(answer.head, record)  # leaves with the first chunk
                    await relay(answer, watch, record, to, self.turns)
            except ProxyError as error:
                await gate.review(error)  # inspect output: an upstream's words against the call
                raise
            again = watch.again
            if again:
                record.ask_again()


async def relay(answer: Answer, watch: Watch, record: Record, to: Shown, turns: LoopTurns) -> None:
    """Hand an answer on, chunk by chunk; one that is not streamed is one chunk per leg. What has
    come together is looked at chunk by chunk, and leaves together."""
    turn = LoopTurn(record.now, turns, record.key)
    straight = StraightWay(watch, record, to)
    shown = straight.shown
    try:
        async for chunks in answer.chunks(straight.hand_on):
            turn.begin()
            try:
                for chunk in straight.left_of(chunks):
                    if chunk.data is None and not chunk.last:  # a sign of life: no guard holds it
                        shown.append(chunk)
                        continue
                    record.account(chunk)  # account: all that was said, shown or not
                    safe = watch.feed_at_once(chunk)  # inspect output: hold back, mask, or raise
                    shown += await _looked(watch, chunk, turn) if safe is None else safe
                    if watch.again:
                        return
            except ProxyError:  # what was clear before it is shown
                await _show(shown, to, turn)
                raise
            await _show(shown, to, turn)
            shown.clear()
    except UpstreamError:
        await _show(watch.cut(), to, turn)
        raise


class StraightWay:
    """The way of chunks on which nobody waits: they are accounted, looked at and sent as they come,
    without waking the task that waits for them. ``shown`` are those that are clear, and not sent.
    """

    __slots__ = ("_error", "_record", "_rest", "_to", "_watch", "shown")

    def __init__(self, watch: Watch, record: Record, to: Shown) -> None:
        self._watch = watch
        self._record = record
        self._to = to
        self.shown: list[Chunk] = []
        self._rest: Sequence[Chunk] | None = None
        self._error: ProxyError | None = None

    def hand_on(self, chunks: Sequence[Chunk]) -> bool:
        """Take chunks of an answer. False if something has to be waited for, or has gone wrong:
        ``left_of`` tells what is left."""
        shown, watch = self.shown, self._watch
        for place, chunk in enumerate(chunks):
            try:
                safe = watch.feed_at_once(chunk)
            except ProxyError as error:
                self._record.account(chunk)
                self._error, self._rest = error, ()
                return False
            if safe is None:
                self._rest = chunks[place:]
                return False
            self._record.account(chunk)
            shown += safe
        if shown and not self._to.send_at_once(shown):
            self._rest = ()
            return False
        shown.clear()
        return True

    def left_of(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return those of the chunks that nobody has looked at. Raise what a guard has said."""
        if self._error is not None:
            raise self._failure()
        rest, self._rest = self._rest, None
        return chunks if rest is None else rest

    def _failure(self) -> ProxyError:
        """Return what is raised now, and kept by nobody: it will hold the frame that raises it."""
        error, self._error = self._error, None
        return error or ProxyError("")


async def _looked(watch: Watch, chunk: Chunk, turn: LoopTurn) -> Sequence[Chunk]:
    """Return what may be shown once guards have looked, and others have had their turn."""
    safe = await watch.feed(chunk)
    if turn.is_over():
        await turn.rest()
    return safe


async def _show(chunks: Sequence[Chunk], to: Shown, turn: LoopTurn) -> None:
    """Send what may be shown, be it nothing or all that was held back."""
    for at in range(0, len(chunks), TOGETHER):
        await to.send(chunks[at : at + TOGETHER])
        if turn.is_over():
            await turn.rest()
    if not chunks and turn.is_over():
        await turn.rest()
