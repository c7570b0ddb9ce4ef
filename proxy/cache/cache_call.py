"""Serve one call from the cache, from the request of an equal call, or from an upstream.

The first of several equal calls is the leader: it owns the task that fetches, and the others
listen. If its client disconnects while others listen, the task continues and the leader is charged.
Without listeners the upstream is closed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from proxy.cache.cache_control import CacheControl
from proxy.cache.cached_answer import RATIO, AnswerMetadata, CachedAnswer, dump, inflate, parse
from proxy.cache.decoded import DecodedAnswers
from proxy.cache.echo import ECHOING, for_call
from proxy.cache.flight import Flight, Listener
from proxy.cache.recorder import AnswerRecorder, choices_wanted, recorder_of
from proxy.cache.semantic import SemanticLookup
from proxy.cache.store import CacheBackend
from proxy.call.attempts import Bill
from proxy.call.billing import CacheSavings
from proxy.call.record import Record
from proxy.dialects.requests.upstream_request import parameters
from proxy.errors import ProxyError, UpstreamError
from proxy.money.usage import Tokens, price_on
from proxy.ports import FetchResponse, Sink
from proxy.runtime.background import ended
from proxy.runtime.frozen import frozen
from proxy.runtime.offload import LARGE_BYTES, Offload
from proxy.runtime.turn import LoopTurn, LoopTurns
from proxy.types import CacheRule, Call, Plan, ResponseHead
from proxy.types.events import Frame

TOGETHER = 64  # frames per write

Flights = dict[object, Flight]


@frozen
class CacheLookup:
    """Lookup of a call under its cache key.

    ``now`` returns seconds since the epoch, because stores outlive a process. ``decoded`` holds
    recently read responses. ``offload`` reads and writes large responses.
    """

    plan: Plan
    call: Call
    rule: CacheRule
    backend: CacheBackend
    key: bytes
    control: CacheControl
    now: Callable[[], float]
    decoded: DecodedAnswers
    semantic: SemanticLookup | None = None
    offload: Offload = Offload()

    @property
    def flight(self) -> object:
        """Identity of the flight that this call may share: the same store, key, response form,
        timeout and use of the cache."""
        call = self.call
        return self.rule.store, self.key, call.stream, call.timeout_s, self.control.no_cache

    @property
    def echoed(self) -> Call | None:
        """The call if its response repeats its request, otherwise None."""
        return self.call if self.call.head.endpoint in ECHOING else None

    @property
    def wanted(self) -> int:
        """Number of choices or vectors of a complete response, after the overrides of policy."""
        call, leg = self.call, self.plan.model_calls[0]
        first = leg.targets[0]
        changes = leg.overrides_for(first)
        if (
            "n" not in call.body and "n" not in changes.set
        ):  # overrides cannot change prompt or input
            return choices_wanted(call, call.body)
        return choices_wanted(call, parameters(call, first, changes))

    async def find(self, record: Record) -> CachedAnswer | None:
        """Return the cached response if it is young enough for the rule, otherwise a response to
        a similar prompt."""
        began = record.now()
        try:
            if self.control.no_cache:
                return None
            kept = await self._take(self.key)
            if kept is None and self.semantic is not None:
                return await self.semantic.find(record, self._take)
            return kept
        finally:
            record.cache_lookup_s = record.now() - began

    async def _take(self, key: bytes) -> CachedAnswer | None:
        value = await self.backend.get(key)
        if value is None:
            return None
        name = key, self.rule.max_bytes, self.call.stream
        kept = self.decoded.find(name, value)
        if kept is None:
            kept = await self._read(key, value)
            if kept is not None:
                self.decoded.keep(name, value, kept)
        return kept if kept is not None and self._age(kept) <= self.rule.ttl else None

    async def _read(self, key: bytes, value: bytes) -> CachedAnswer | None:
        size = len(value) * RATIO
        if size <= LARGE_BYTES:
            text = inflate(key, value, self.rule.max_bytes)
        else:
            larger = partial(inflate, key, value, self.rule.max_bytes)
            text = await self.offload.run(size, larger, self.call.scheduling_key)
        if text is None:
            return None
        if len(text) <= LARGE_BYTES:  # compression may be effective
            return parse(text, self.call)
        parsed = partial(parse, text, self.call)
        return await self.offload.run(len(text), parsed, self.call.scheduling_key)

    def _age(self, kept: CachedAnswer) -> float:
        return self.now() - kept.about.at

    def suits(self, kept: CachedAnswer) -> bool:
        """Return True if the response is young enough for the client."""
        return self.control.max_age is None or self._age(kept) <= self.control.max_age

    def store(self, keep: AnswerRecorder, bill: Bill | None) -> None:
        """Store a small, complete response with its bill."""
        short_as_is = self.backend.is_own
        self._put(dump(self.key, self._about(keep, bill), keep.lines, short_as_is=short_as_is))

    async def store_large(self, keep: AnswerRecorder, bill: Bill | None) -> None:
        """Store a large, complete response, compressed outside the event loop."""
        dumped = partial(dump, self.key, self._about(keep, bill), keep.lines)
        self._put(await self.offload.run(keep.size, dumped, self.call.scheduling_key))

    def _about(self, keep: AnswerRecorder, bill: Bill | None) -> AnswerMetadata:
        upstream, model = (bill.target.upstream.name, bill.target.model) if bill else ("", "")
        return AnswerMetadata(
            at=self.now(),
            streamed=self.call.stream,
            upstream=upstream,
            model=model,
            tokens=bill.usage.tokens if bill else Tokens(),
            family=keep.family,
        )

    def _put(self, value: bytes) -> None:
        self.backend.put(self.key, value, self.rule.ttl)
        if self.semantic is not None:
            self.semantic.keep(self.key)

    def worth(self, kept: CachedAnswer, record: Record) -> CacheSavings:
        """Return the tokens of a cached response and their cost at current prices."""
        about, today = kept.about, record.started_at.date()
        for target in self.plan.model_calls[0].targets:
            if (target.upstream.name, target.model) == (about.upstream, about.model):
                price = price_on(target.prices, today)
                return CacheSavings(about.tokens, price.cost(about.tokens) if price else None)
        return CacheSavings(about.tokens, None)


@dataclass(slots=True)
class CacheCall:
    """One call at the cache. ``flights`` are shared by all calls; ``turns`` orders long replays."""

    lookup: CacheLookup
    flights: Flights
    record: Record
    client: Sink
    forward: FetchResponse
    turns: LoopTurns
    _failed: int = 0

    async def run(self) -> None:
        if not self.lookup.control.keep:
            await self._alone()
            return
        while True:
            name = self.lookup.flight
            flight = self.flights.get(name)
            if flight is not None and flight.joinable:
                is_served = await self._join(flight)
            else:
                is_served = await self._lead(name)
            if is_served:  # otherwise this call may lead the next flight
                return

    async def _alone(self) -> None:
        """Serve a call whose response must be neither stored nor shared."""
        kept = await self.lookup.find(self.record)
        if kept is not None and self.lookup.suits(kept):
            await self._replay(kept)
        else:
            self.record.cache = "miss"
            await self.forward(self.client)

    async def _show(self, kept: CachedAnswer) -> bool:
        if not self.lookup.suits(kept):
            self.lookup = replace(self.lookup, control=replace(self.lookup.control, no_cache=True))
            return False
        await self._replay(kept)
        return True

    async def _replay(self, kept: CachedAnswer) -> None:
        self.record.cache = "hit_semantic" if kept.is_semantic else "hit"
        self.record.saved = self.lookup.worth(kept, self.record)
        await self.client.start(ResponseHead(self.lookup.call.stream), self.record)
        frames: Sequence[Frame] = kept.frames
        if self.lookup.echoed is not None:
            frames = [for_call(frame, self.lookup.echoed) for frame in frames]
        if len(frames) <= TOGETHER:
            await self.client.send(frames)
            return
        turn = self._turn()
        turn.begin()
        for at in range(0, len(frames), TOGETHER):
            await self._send(frames[at : at + TOGETHER], turn)

    def _turn(self) -> LoopTurn:
        return LoopTurn(self.record.now, self.turns, self.record.key)

    async def _send(self, frames: Sequence[Frame], turn: LoopTurn) -> None:
        await self.client.send(frames)
        if turn.is_over():
            await turn.rest()

    async def _join(self, flight: Flight) -> bool:
        began = self.record.now()
        try:
            with flight.joined(self.lookup.echoed) as place:
                await flight.begun()
                if flight.shows:
                    await self._listen(flight, place)
                    return True
        finally:
            self.record.wait_s += self.record.now() - began
        if flight.kept is not None:
            return await self._show(flight.kept)
        return self._again(flight)

    async def _listen(self, flight: Flight, place: Listener) -> None:
        self.record.cache = "coalesced"
        theirs = flight.head
        head = ResponseHead(self.lookup.call.stream, is_flagged=theirs.is_flagged)
        await self.client.start(head, self.record)
        await self._show_all(await place.next(TOGETHER), place)
        self.record.saved = flight.saved

    def _again(self, flight: Flight) -> bool:
        """Let the call lead after a flight without a response. Raise if the failure also holds
        for this call: an invalid request, or the second failure of the upstream."""
        error = flight.error
        if isinstance(error, UpstreamError) or (error is not None and error.is_final):
            self._failed += 1
            if self._failed > 1 or error.is_final:
                self.record.cache = "coalesced"
                raise flight.failure().with_traceback(None) from None
        return False

    async def _lead(self, name: object) -> bool:
        flight = self.flights[name] = Flight()
        try:
            flight.kept = kept = await self.lookup.find(self.record)
            if kept is None:
                await self._fetch(flight)
                return True
        finally:
            if not flight.closed:
                flight.close()
            if self.flights.get(name) is flight:
                del self.flights[name]
        return await self._show(kept)

    async def _fetch(self, flight: Flight) -> None:
        self.record.cache = "refresh" if self.lookup.control.no_cache else "miss"
        async with Fill(self.lookup, self.forward, flight):
            with flight.joined() as place:
                first = await place.next(TOGETHER)
                await self.client.start(flight.head, self.record)
                await self._show_all(first, place)

    async def _show_all(self, frames: Sequence[Frame], place: Listener) -> None:
        """Send a response while it is fetched. Raises its error."""
        turn: LoopTurn | None = None
        while not frames[-1].last:
            turn = turn or self._turn()
            turn.begin()
            await self._send(frames, turn)
            place.straight = self.client
            frames = await place.next(TOGETHER)
        await self.client.send(frames)


@dataclass(slots=True)
class Fill:
    """Task that fetches the response of a flight. Leaving waits while others listen, then ends
    the task."""

    lookup: CacheLookup
    forward: FetchResponse
    flight: Flight
    _keep: AnswerRecorder = field(init=False)
    _record: Record = field(init=False)
    _task: asyncio.Task[None] = field(init=False)
    _to_keep: Callable[[], None] | None = None
    _bug: Exception | None = None

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._fill())

    async def __aexit__(self, *exc_info: object) -> None:
        task = self._task
        try:
            await self.flight.unneeded()
        finally:
            try:
                await ended(task)
            finally:
                del self._task, task  # breaks a reference cycle with the frames of the stack
        self._store()
        if self._bug is not None:
            raise self._bug from None

    async def _fill(self) -> None:
        try:
            await self.forward(self)
        except ProxyError as error:
            self.flight.close(error)
        finally:
            self.flight.close()

    async def start(self, head: ResponseHead, record: Record) -> None:
        self._record = record
        lookup = self.lookup
        self._keep = recorder_of(head, lookup.call, lookup.rule, lookup.wanted)
        self._keep.flagged = head.is_flagged
        self.flight.head = head

    async def send(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            await self._send(frame)

    def try_send(self, frames: Sequence[Frame]) -> bool:
        keep, flight = self._keep, self.flight
        for frame in frames:
            if flight.oversize or frame.last or frame.size > LARGE_BYTES:
                return False
        for frame in frames:
            keep.feed(frame)
            flight.add_at_once(frame)
        flight.oversize = keep.oversize
        return True

    async def _send(self, frame: Frame) -> None:
        """Record a frame and pass it on.

        The response is stored before a client that has its last frame can repeat the request: a
        large one before the last frame is passed on, a small one in the same iteration of the event
        loop, after the frame is sent.
        """
        keep, line = self._keep, None
        if frame.size > LARGE_BYTES and not keep.oversize:
            made = partial(keep.write, frame)
            line = await self.lookup.offload.run(frame.size, made, self.lookup.call.scheduling_key)
        keep.feed(frame, line)
        self.flight.oversize = keep.oversize
        if not frame.last:
            await self.flight.add(frame)
            return
        bill = self._record.used_bill()
        self.flight.saved = CacheSavings(bill.usage.tokens, bill.cost) if bill else None
        if keep.whole and keep.size > LARGE_BYTES:
            await self.lookup.store_large(keep, bill)
        await self.flight.add(frame)  # wakes the listeners
        if keep.whole and keep.size <= LARGE_BYTES:
            self._to_keep = partial(self.lookup.store, keep, bill)
            asyncio.get_running_loop().call_soon(self._store)

    def _store(self) -> None:
        """Store a small response once: called by the event loop and by the leader."""
        keep, self._to_keep = self._to_keep, None
        if keep is not None:
            try:
                keep()
            except Exception as bug:  # noqa: BLE001 # raised by the leader
                self._bug = bug
