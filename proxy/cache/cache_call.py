"""Serve one call from the cache, from the request of an equal call, or from an upstream.

The first of several equal calls is the leader: it owns the task that fetches, and the others
listen. If its client disconnects while others listen, the task continues and the leader is charged.
Without listeners the upstream is closed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from proxy.cache import cached_answer
from proxy.cache.cache_control import CacheControl
from proxy.cache.flight import Flight, FlightListener
from proxy.cache.recorder import AnswerRecorder, count_requested_choices, open_recorder
from proxy.cache.semantic import SemanticLookup
from proxy.cache.store import CacheBackend
from proxy.call.attempts import Bill, CacheSavings
from proxy.call.record import Record
from proxy.dialects.requests.upstream_request import apply_overrides
from proxy.errors import GuardBlocked, ProxyError, UpstreamError
from proxy.money.usage import Tokens, find_price_on
from proxy.ports import FetchResponse, Sink
from proxy.runtime.background import cancel_and_wait
from proxy.runtime.fair_queue import LARGE_BYTES, TimeSlice
from proxy.types import CacheRule, Call, Plan, ResponseHead
from proxy.types.events import Frame

if TYPE_CHECKING:
    from proxy.cache import AnswerCache

MAX_FRAMES_PER_WRITE = 64  # frames that are written together

Flights = dict[object, Flight]
_COUNTED_ERRORS = UpstreamError, GuardBlocked  # an equal call may get the same error again


@dataclass(slots=True)
class CacheCall:
    """Serves one call: from the cache, from the flight of an equal call, or as leader of a flight.

    ``key`` is its cache key. ``client`` gets the response, which ``forward`` fetches on a miss.
    """

    cache: AnswerCache
    plan: Plan
    call: Call
    record: Record
    client: Sink
    forward: FetchResponse
    rule: CacheRule
    backend: CacheBackend
    key: bytes
    control: CacheControl
    semantic: SemanticLookup | None
    _failures: int = 0

    async def run(self) -> None:
        if not self.control.allows_storing:  # the response must be neither stored nor shared
            answer = await self._find_exact_or_similar()
            if answer is not None and self._is_young_enough(answer):
                await self._replay(answer)
            else:
                self.record.cache = "miss"
                await self.forward(self.client)
            return
        is_served, flights = False, self.cache.flights
        while not is_served:
            # Calls share a flight for the same store, key, response form, timeout and cache use.
            form = self.call.stream, self.call.timeout_s, self.control.no_cache
            flight_id = self.rule.store, self.key, *form
            flight = flights.get(flight_id)
            if flight is not None and flight.is_joinable:
                is_served = await self._join_flight(flight)
            else:
                is_served = await self._lead_lookup_and_fetch(flight_id)

    @property
    def echoed_call(self) -> Call | None:
        """The call if responses of its endpoint repeat the request, otherwise None."""
        return self.call if self.call.head.endpoint in cached_answer.ECHOING_ENDPOINTS else None

    @property
    def expected_choices_or_vectors(self) -> int:
        """Number of choices or vectors of a complete response, after the overrides of policy."""
        call, model_call = self.call, self.plan.model_calls[0]
        target = model_call.targets[0]
        overrides = model_call.get_overrides(target)
        # Legacy completions and embeddings have no overrides.
        if "n" not in call.body and "n" not in overrides.set:
            return count_requested_choices(call, call.body)
        return count_requested_choices(call, apply_overrides(call, target, overrides))

    async def _find_exact_or_similar(self) -> cached_answer.CachedAnswer | None:
        """Return a fresh cached response, otherwise the response to a similar prompt."""
        record = self.record
        started_at = record.now()
        try:
            if self.control.no_cache:
                return None
            answer = await self._read(self.key)
            if answer is None and self.semantic is not None:
                return await self.semantic.find(record, self._read)
            return answer
        finally:
            record.cache_lookup_s = record.now() - started_at

    async def _read(self, key: bytes) -> cached_answer.CachedAnswer | None:
        value, decoded = await self.backend.get(key), self.cache.decoded
        if value is None:
            return None
        decoding_key = key, self.rule.max_bytes, self.call.stream
        answer = decoded.find(decoding_key, value)
        if answer is None:
            answer = await self._decode(key, value)
            if answer is not None:
                decoded.add(decoding_key, value, answer)
        is_fresh = answer is not None and self._get_age_s(answer) <= self.rule.ttl
        return answer if is_fresh else None

    async def _decode(self, key: bytes, value: bytes) -> cached_answer.CachedAnswer | None:
        caller, run = self.call.scheduling_key, self.cache.offload.run
        decompress = partial(cached_answer.decompress_answer, key, value, self.rule.max_bytes)
        text = await run(len(value) * cached_answer.COMPRESSION_RATIO, decompress, caller)
        if text is None:
            return None
        return await run(len(text), partial(cached_answer.parse_answer, text, self.call), caller)

    def _get_age_s(self, answer: cached_answer.CachedAnswer) -> float:
        return self.cache.now() - answer.metadata.ended_at

    def _is_young_enough(self, answer: cached_answer.CachedAnswer) -> bool:
        """Return True if the response is young enough for the client."""
        return self.control.max_age is None or self._get_age_s(answer) <= self.control.max_age

    async def store(self, recorder: AnswerRecorder, bill: Bill | None) -> None:
        """Store a complete response and the tokens of its bill. Waits only if it is large."""
        metadata = cached_answer.AnswerMetadata(
            ended_at=self.cache.now(),
            streamed=self.call.stream,
            upstream=bill.target.upstream.name if bill else "",
            model=bill.target.model if bill else "",
            tokens=bill.usage.tokens if bill else Tokens(),
            family=recorder.family,
        )
        parts, is_in_process = (self.key, metadata, recorder.lines), self.backend.is_in_process
        encode = partial(
            cached_answer.serialize_answer, *parts, leave_short_uncompressed=is_in_process
        )
        value = (
            encode()
            if recorder.size <= LARGE_BYTES
            else await self.cache.offload.run(recorder.size, encode, self.call.scheduling_key)
        )
        self.backend.save(self.key, value, self.rule.ttl)
        if self.semantic is not None:
            self.semantic.index_answer(self.key)

    def _compute_savings(self, answer: cached_answer.CachedAnswer) -> CacheSavings:
        """Return the tokens of a cached response and their cost at current prices."""
        metadata, today = answer.metadata, self.record.started_at.date()
        for target in self.plan.model_calls[0].targets:
            if (target.upstream.name, target.model) == (metadata.upstream, metadata.model):
                price = find_price_on(target.prices, today)
                cost = price.compute_cost(metadata.tokens) if price else None
                return CacheSavings(metadata.tokens, cost)
        return CacheSavings(metadata.tokens, None)

    async def _replay_if_young_enough(self, answer: cached_answer.CachedAnswer) -> bool:
        """Send a cached response. If it is too old, return False; the next lookup will miss."""
        if not self._is_young_enough(answer):
            self.control = replace(self.control, no_cache=True)
            return False
        await self._replay(answer)
        return True

    async def _replay(self, answer: cached_answer.CachedAnswer) -> None:
        self.record.cache = "hit_semantic" if answer.is_semantic else "hit"
        self.record.saved = self._compute_savings(answer)
        await self.client.set_response_head(ResponseHead(self.call.stream), self.record)
        frames: Sequence[Frame] = answer.frames
        if (call := self.echoed_call) is not None:
            frames = [cached_answer.replace_echoed_user_fields(frame, call) for frame in frames]
        if len(frames) <= MAX_FRAMES_PER_WRITE:
            await self.client.send(frames)
            return
        time_slice = TimeSlice(self.record.now, self.cache.pause_scheduler, self.record.key)
        time_slice.start()
        for start in range(0, len(frames), MAX_FRAMES_PER_WRITE):
            await self._send(frames[start : start + MAX_FRAMES_PER_WRITE], time_slice)

    async def _send(self, frames: Sequence[Frame], time_slice: TimeSlice) -> None:
        await self.client.send(frames)
        if time_slice.is_over():
            await time_slice.pause()

    async def _join_flight(self, flight: Flight) -> bool:
        """Join the flight of an equal call.

        Return False if the flight failed and this call may lead the next one. Raises the error of
        the flight if the request is invalid. Also raises an error of an upstream or an output guard
        if it is the second one for this call.
        """
        started_at = self.record.now()
        try:
            with FlightListener(flight, self.echoed_call) as listener:
                await flight.wait_until_started()
                if flight.has_frames_to_relay:
                    self.record.cache = "coalesced"
                    is_flagged = flight.head.is_flagged
                    head = ResponseHead(self.call.stream, is_flagged=is_flagged)
                    await self.client.set_response_head(head, self.record)
                    await self._relay_flight(
                        await listener.next_frames(MAX_FRAMES_PER_WRITE), listener
                    )
                    self.record.saved = flight.saved
                    return True
        finally:
            self.record.wait_s += self.record.now() - started_at
        if flight.cached is not None:
            return await self._replay_if_young_enough(flight.cached)
        error = flight.error
        if error is not None and (error.is_final or isinstance(error, _COUNTED_ERRORS)):
            self._failures += 1
            if self._failures > 1 or error.is_final:
                self.record.cache = "coalesced"
                raise error.with_traceback(None) from None
        return False

    async def _lead_lookup_and_fetch(self, flight_id: object) -> bool:
        flights = self.cache.flights
        flight = flights[flight_id] = Flight()
        try:
            flight.cached = answer = await self._find_exact_or_similar()
            if answer is None:
                self.record.cache = "refresh" if self.control.no_cache else "miss"
                async with FetchTask(self, flight):
                    with FlightListener(flight) as listener:
                        frames = await listener.next_frames(MAX_FRAMES_PER_WRITE)
                        await self.client.set_response_head(flight.head, self.record)
                        await self._relay_flight(frames, listener)
                return True
        finally:
            if not flight.is_closed:
                flight.close()
            if flights.get(flight_id) is flight:
                del flights[flight_id]
        return await self._replay_if_young_enough(answer)

    async def _relay_flight(self, frames: Sequence[Frame], listener: FlightListener) -> None:
        """Send the frames of a flight as they arrive. Raises the error of the flight."""
        time_slice: TimeSlice | None = None
        while not frames[-1].last:
            time_slice = time_slice or TimeSlice(
                self.record.now, self.cache.pause_scheduler, self.record.key
            )
            time_slice.start()
            await self._send(frames, time_slice)
            listener.sink = self.client
            frames = await listener.next_frames(MAX_FRAMES_PER_WRITE)
        await self.client.send(frames)


@dataclass(slots=True)
class FetchTask:
    """Task that fetches the response of a flight, and the sink that receives the response.

    Leaving the context waits while other calls listen, then ends the task.
    """

    cache_call: CacheCall
    flight: Flight
    _recorder: AnswerRecorder = field(init=False)
    _record: Record = field(init=False)
    _task: asyncio.Task[None] = field(init=False)

    async def __aenter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._fetch())

    async def __aexit__(self, *exc_info: object) -> None:
        task = self._task
        try:
            await self.flight.wait_until_unneeded()
        finally:
            try:
                await cancel_and_wait(task)
            finally:
                del self._task, task  # breaks a reference cycle with the frames of the stack

    async def _fetch(self) -> None:
        try:
            await self.cache_call.forward(self)
        except ProxyError as error:
            self.flight.close(error)
        finally:
            self.flight.close()

    async def set_response_head(self, head: ResponseHead, record: Record) -> None:
        self._record = record
        cache_call = self.cache_call
        expected_count = cache_call.expected_choices_or_vectors
        self._recorder = open_recorder(head, cache_call.call, cache_call.rule, expected_count)
        self._recorder.is_flagged = head.is_flagged
        self.flight.head = head

    async def send(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            await self._send(frame)

    def try_send(self, frames: Sequence[Frame]) -> bool:
        recorder, flight = self._recorder, self.flight
        for frame in frames:
            if flight.is_oversize or frame.last or frame.size > LARGE_BYTES:
                return False
        for frame in frames:
            recorder.feed(frame)
            flight.add_nowait(frame)
        flight.is_oversize = recorder.is_oversize
        return True

    async def _send(self, frame: Frame) -> None:
        """Record a frame and send it.

        A client that has the last frame may repeat the request at once. Therefore the response is
        stored before a listener sends its last frame.
        """
        recorder, encoded = self._recorder, None
        if frame.size > LARGE_BYTES and not recorder.is_oversize:
            encode, caller = partial(recorder.encode, frame), self.cache_call.call.scheduling_key
            encoded = await self.cache_call.cache.offload.run(frame.size, encode, caller)
        recorder.feed(frame, encoded)
        self.flight.is_oversize = recorder.is_oversize
        if not frame.last:
            await self.flight.add(frame)
            return
        bill = self._record.get_first_used_bill()
        self.flight.saved = CacheSavings(bill.usage.tokens, bill.cost) if bill else None
        is_large = recorder.size > LARGE_BYTES
        if recorder.is_complete and is_large:
            await self.cache_call.store(recorder, bill)
        await self.flight.add(frame)  # wakes the listeners in the next iteration of the event loop
        if recorder.is_complete and not is_large:
            # Does not wait. An error affects the leader.
            await self.cache_call.store(recorder, bill)
