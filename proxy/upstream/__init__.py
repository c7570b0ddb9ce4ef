"""Forwarding: the question goes to a target, its answer comes back in OpenAI's form.

The targets of a leg are tried in order until one begins to answer: nothing has reached the client
till then, and afterwards another try would never be safe. Several legs run side by side.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

from proxy.dialects import DIALECTS
from proxy.dialects.asking import Question, ask
from proxy.dialects.reading import AnswerReader, StreamReader, WholeReader, turning
from proxy.errors import (
    BadField,
    ProxyError,
    RequestTimeout,
    UpstreamError,
    UpstreamInvalid,
    UpstreamRefused,
)
from proxy.ports import Answer
from proxy.record import Attempt, Record
from proxy.types import Call, Chunk, Head, Plan, Target
from proxy.upstream.listing import Listed
from proxy.upstream.refusal import refusal
from proxy.upstream.reply import Http, Reply
from proxy.upstream.together import Together

MIN_TOTAL_S = 0.001


@dataclass(frozen=True, slots=True)
class Asked:
    """One question on its way: what was asked, of whom, and where it is recorded."""

    call: Call
    target: Target
    question: Question
    attempt: Attempt
    record: Record

    def fail(self, error: BaseException) -> BaseException:
        """Note how the attempt failed. Time that the client itself has set is the client's."""
        self.attempt.ended = self.record.now()
        self.attempt.error = error.code if isinstance(error, ProxyError) else "cancelled"
        allowed = self.call.timeout_s
        ran_out = isinstance(error, ProxyError) and error.code == "upstream_total_timeout"
        if ran_out and allowed is not None and allowed < self.target.upstream.timeouts.total:
            return RequestTimeout("The time that the request allowed is over.")
        return error


@dataclass(slots=True)
class Forwarded:
    """One upstream's answer, begun. Its attempt ends when it is left, whatever way."""

    head: Head
    reply: Reply
    reader: AnswerReader
    asked: Asked
    _source: AsyncIterator[Chunk] | None = None
    _first: Chunk | None = None

    async def begin(self) -> Self:
        """Wait for the first chunk. Raises ``UpstreamError`` when none comes."""
        self._source = self._read()
        self._first = await anext(self._source)
        return self

    async def chunks(self) -> AsyncIterator[Chunk]:
        if self._source is None or self._first is None:
            raise RuntimeError("an answer is begun before it is read")
        yield self._first
        async for chunk in self._source:
            yield chunk

    async def _read(self) -> AsyncIterator[Chunk]:
        try:
            while piece := await self.reply.piece():
                for chunk in self.reader.feed(piece):
                    yield chunk
                    if chunk.last:
                        await self.reply.finish()
                        return
            for chunk in self.reader.close():
                yield chunk
        except UpstreamError as error:
            raise self.asked.fail(error) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        attempt = self.asked.attempt
        attempt.ended = attempt.ended or self.asked.record.now()
        await self.reply.__aexit__(kind, error, trace)


@dataclass(frozen=True, slots=True)
class Upstreams:
    """The upstreams of the policies, behind one client. ``via`` marks requests against loops."""

    http: Http
    via: str
    new_span_id: Callable[[], str]

    async def open(self, plan: Plan, call: Call, record: Record) -> Answer:
        if plan.listing is not None:
            return Listed(plan.listing)
        begin = partial(self._begin, plan, call, record)
        if len(plan.legs) == 1:
            return await begin(0)
        return Together(begin, len(plan.legs), record.now)

    async def _begin(self, plan: Plan, call: Call, record: Record, leg: int) -> Answer:
        """Give the first answer that begins. When none does, the first failure says why."""
        failures: list[ProxyError] = []
        for target in plan.legs[leg].targets:
            try:
                return await self._try(target, call, record, leg)
            except (UpstreamError, BadField) as failure:
                failures.append(failure)
                if isinstance(failure, UpstreamRefused) or not _time_left(plan, call, record, leg):
                    break
        raise failures[0]

    async def _try(self, target: Target, call: Call, record: Record, leg: int) -> Answer:
        """Ask one target; give its answer once its first chunk is there."""
        spoken = DIALECTS[target.upstream.dialect]
        question = ask(call, target, DIALECTS[call.door.dialect], spoken)
        record.warnings.extend(f"{name} dropped" for name in question.dropped)
        attempt = record.attempt(target, leg, self.new_span_id())
        asked = Asked(call, target, question, attempt, record)
        try:
            return await self._answer(asked, await self._post(asked))
        except BaseException as error:  # noqa: BLE001  # noted, and raised again
            raise asked.fail(error) from None

    async def _post(self, asked: Asked) -> Reply:
        upstream = asked.target.upstream
        via = ", ".join((*asked.call.door.via, self.via))
        headers = {**asked.question.headers, "x-headrace-via": via}
        if upstream.propagate_trace:
            span = asked.attempt.span_id
            headers["traceparent"] = f"00-{asked.record.ids.trace_id}-{span}-01"
        limits = upstream.timeouts
        if asked.call.timeout_s is not None:
            spent = asked.record.now() - asked.record.started
            left = max(MIN_TOTAL_S, asked.call.timeout_s - spent)
            limits = replace(limits, total=min(limits.total, left))
        reply = await self.http.post(asked.question.url, headers, asked.question.body, limits)
        asked.attempt.status = reply.status
        return reply

    async def _answer(self, asked: Asked, reply: Reply) -> Answer:
        async with AsyncExitStack() as opened:
            await opened.enter_async_context(reply)
            if reply.status != 200:
                raise await refusal(reply, asked.target.upstream)
            answer = Forwarded(
                Head(asked.call.stream, _shown(asked, reply)), reply, _reader(asked, reply), asked
            )
            asked.attempt.began = asked.record.now()
            await answer.begin()
            opened.pop_all()
        return answer


def _time_left(plan: Plan, call: Call, record: Record, leg: int) -> bool:
    """Whether another target may be tried within what the client, or the first target, allows."""
    allowed = plan.legs[leg].targets[0].upstream.timeouts.total
    if call.timeout_s is not None:
        allowed = min(allowed, call.timeout_s)
    return record.now() - record.started < allowed


def _reader(asked: Asked, reply: Reply) -> AnswerReader:
    """Choose by what came, not by what was asked; an answer of no known kind is refused."""
    if reply.headers.get("content-encoding", "identity").lower() != "identity":
        raise UpstreamInvalid("The upstream sent an encoded answer that was not asked for.")
    call, leg, goes = asked.call, asked.attempt.leg, asked.question.endpoint
    turn = turning(call.door.endpoint, goes, streamed=call.stream)
    media_type = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "text/event-stream" and call.stream:
        return StreamReader(leg, turn)
    if media_type != "application/json":
        raise UpstreamInvalid("The upstream sent neither JSON nor the stream that was asked for.")
    upstream = asked.target.upstream
    server = DIALECTS[upstream.dialect].server
    wants = "data" if goes == "embeddings" else "choices"
    limit = upstream.max_answer_bytes
    return WholeReader(leg, turn, server, wants=wants, stream=call.stream, limit=limit)


def _shown(asked: Asked, reply: Reply) -> tuple[tuple[str, str], ...]:
    """By allow-list, and only to a client that speaks the upstream's own dialect."""
    shown = DIALECTS[asked.target.upstream.dialect].server.shown
    if not shown or asked.target.upstream.dialect != asked.call.door.dialect:
        return ()
    return tuple(
        (name.lower(), value)
        for name, value in reply.headers.items()
        if any(_fits(name.lower(), allowed) for allowed in shown)
    )


def _fits(name: str, allowed: str) -> bool:
    return name.startswith(allowed) if allowed.endswith("-") else name == allowed
