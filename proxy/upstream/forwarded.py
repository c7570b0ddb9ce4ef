"""One question on its way, and the answer that comes back: what it said, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from proxy.dialects import DIALECTS
from proxy.dialects.asking import Question
from proxy.dialects.reading import AnswerReader, StreamReader, WholeReader, turning
from proxy.errors import ProxyError, RequestTimeout, UpstreamError, UpstreamInvalid
from proxy.record import Attempt, Record
from proxy.types import Call, Chunk, Head, Target
from proxy.upstream.health import Slot
from proxy.upstream.reply import Reply


@dataclass(frozen=True, slots=True)
class Asked:
    """One question on its way: what was asked, of whom, in which place, and where it is recorded.

    ``leave`` it once, whatever way it ended.
    """

    call: Call
    target: Target
    question: Question
    attempt: Attempt
    record: Record
    slot: Slot

    def fail(self, error: BaseException) -> BaseException:
        """Note how the attempt failed. Time that the client itself has set is the client's."""
        self.slot.failed(error)
        self.attempt.error = error.code if isinstance(error, ProxyError) else "cancelled"
        allowed = self.call.timeout_s
        ran_out = isinstance(error, ProxyError) and error.code == "upstream_total_timeout"
        if ran_out and allowed is not None and allowed < self.target.upstream.timeouts.total:
            return RequestTimeout("The time that the request allowed is over.")
        return error

    def leave(self) -> None:
        """Note the end, and give the place back."""
        self.attempt.ended = self.record.now()
        self.slot.give_back()


@dataclass(slots=True)
class Forwarded:
    """One upstream's answer, begun. Its attempt ends when it is left, whatever way.

    Entering owns the reply; until it has begun, whoever made it does.
    """

    head: Head
    reply: Reply
    reader: AnswerReader
    asked: Asked
    _source: AsyncIterator[Chunk] | None = None
    _first: Chunk | None = None
    _left: bool = False

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
                    yield self._noted(chunk)
                    if chunk.last:
                        await self.reply.finish()
                        return
            for chunk in self.reader.close():
                yield self._noted(chunk)
        except UpstreamError as error:
            raise self.asked.fail(error) from None

    def _noted(self, chunk: Chunk) -> Chunk:
        """A target has worked, and is free for others, once its answer is whole: what guards then
        do with it is none of its time."""
        if chunk.last:
            self.asked.slot.worked = True
            self._leave()
        return chunk

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self.asked.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        await self.reply.__aexit__(kind, error, trace)


def reader_of(asked: Asked, reply: Reply) -> AnswerReader:
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


def shown_of(asked: Asked, reply: Reply) -> tuple[tuple[str, str], ...]:
    """By allow-list, and only to a client that speaks the upstream's own dialect."""
    shown = DIALECTS[asked.target.upstream.dialect].server.shown
    if not shown or asked.target.upstream.dialect != asked.call.door.dialect:
        return ()
    begins = tuple(allowed for allowed in shown if allowed.endswith("-"))
    return tuple(
        (name, value)
        for name, value in reply.headers.items()
        if name in shown or name.startswith(begins)
    )
