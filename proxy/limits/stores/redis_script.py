"""Encodes calls of the script of the shared store (``counters.lua``) and batches them.

Calls that arrive during a round trip join the next one. Only one round trip runs at a time, so
calls are executed in the order in which they were submitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

from proxy.limits.stores.store import StoreUnavailable
from proxy.runtime.frozen import frozen
from proxy.types.limit import Claim, Limit

Reply = Sequence[int] | StoreUnavailable
Callback = Callable[[Reply], None]

MAX_WAITING = 10_000
BATCH_SIZE = 64
LINGER_S = 0.005
RATE, BUDGET, CONCURRENCY = 1, 2, 3
COUNT_ONLY = 2  # replaces the shadow flag
MAX_ENCODED_LIMITS = 4096


@frozen
class ScriptCall:
    """One call of the script: its Redis keys, first that of the API call, and its JSON argument."""

    keys: tuple[str, ...]
    text: str


class EncodedLimit(NamedTuple):
    """Fields that all claims on ``limit`` share until its window ends, as JSON."""

    limit: Limit
    window_end_ms: int
    text: str


@dataclass(slots=True)
class ClaimEncoder:
    """Encodes keys and claims. ``utc`` returns seconds since 1970.

    All keys share a hash tag, so that a cluster keeps them on one server.
    """

    utc: Callable[[], float]
    prefix: str = "headrace"
    _limits: dict[str, EncodedLimit] = field(default_factory=dict)

    def encode_keys(self, request_id: str, claims: Sequence[Claim]) -> tuple[str, ...]:
        """Return the key of the call, then the keys of the claimed counters."""
        start = f"{self.prefix}:{{limits}}:"
        names = [f"{start}{claim.limit.key}:{claim.scope}" for claim in claims]
        return (f"{start}call:{request_id}", *names)

    def encode_claims(self, claims: Sequence[Claim]) -> str:
        now_ms = int(self.utc() * 1000)
        texts = []
        for claim in claims:
            limit = claim.limit
            entry = self._limits.get(limit.key)
            if entry is None or entry.limit is not limit or now_ms >= entry.window_end_ms:
                entry = self._encode_limit(limit, now_ms)
            text = entry.text
            if claim.is_count_only:
                text = f",{COUNT_ONLY}{text[2:]}"  # replaces the digit of the shadow flag
            texts.append(f"[{claim.amount}{text}")
        return f"[{','.join(texts)}]"

    def _encode_limit(self, limit: Limit, now_ms: int) -> EncodedLimit:
        window_end_ms = 2**63
        if limit.is_budget:
            parameters: tuple[int, ...] = limit.calendar.get_window_bounds_ms(now_ms)
            kind, window_end_ms = BUDGET, parameters[2]
        elif limit.is_leased:
            kind, parameters = CONCURRENCY, (limit.lease_s * 1000,)
        else:
            kind, parameters = RATE, (limit.debt_per_unit, limit.drain_per_ms)
        numbers = (int(limit.shadow), kind, limit.capacity, limit.warn_amount, *parameters)
        if len(self._limits) >= MAX_ENCODED_LIMITS:
            self._limits.clear()
        text = "".join(f",{number}" for number in numbers) + "]"
        entry = EncodedLimit(limit, window_end_ms, text)
        self._limits[limit.key] = entry
        return entry


def to_call_json(operation: str, ttl_ms: int, *json_parts: str) -> str:
    """Return the JSON argument of a script call."""
    return f'["{operation}",{ttl_ms},{",".join(json_parts)}]'


def to_json_list(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


@dataclass(slots=True)
class Batcher:
    """Context manager that sends script calls in batches. Leaving sends the last ones.

    ``send_batch`` returns one reply per script call, in order. Calls that wait behind a failed
    round trip fail with it, so that no caller waits for two timeouts.
    """

    send_batch: Callable[[Sequence[ScriptCall]], Awaitable[Sequence[Reply]]]
    _waiting: list[tuple[ScriptCall, Callback]] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _linger_timer: asyncio.TimerHandle | None = None
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _is_open: bool = True

    def submit(self, call: ScriptCall) -> asyncio.Future[Sequence[int]]:
        """Send a call with the next round trip. Raises ``StoreUnavailable``, as does the future."""
        reply: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        self._enqueue(call, partial(_set_result, reply))
        self._wake.set()
        return reply

    def submit_lingering(self, call: ScriptCall, callback: Callback) -> None:
        """Send a call with the next one submitted, or separately after ``LINGER_S``.

        Raises ``StoreUnavailable``.
        """
        self._enqueue(call, callback)
        if self._linger_timer is None:
            self._linger_timer = asyncio.get_running_loop().call_later(LINGER_S, self._end_linger)

    def _end_linger(self) -> None:
        self._linger_timer = None
        self._wake.set()

    def _enqueue(self, call: ScriptCall, callback: Callback) -> None:
        if not self._is_open or len(self._waiting) >= MAX_WAITING:
            raise StoreUnavailable("too many operations wait for Redis")
        self._waiting.append((call, callback))

    async def _send_batches(self) -> None:
        while self._is_open or self._waiting:
            await self._wake.wait()
            batch, self._waiting = self._waiting[:BATCH_SIZE], self._waiting[BATCH_SIZE:]
            if self._is_open and not self._waiting:
                self._wake.clear()
            if not batch:
                continue
            replies = await self.send_batch([call for call, _ in batch])
            for (_, callback), reply in zip(batch, replies, strict=True):
                callback(reply)
            if isinstance(replies[-1], StoreUnavailable):
                failed, self._waiting = self._waiting, []
                for _, callback in failed:
                    callback(replies[-1])

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.create_task(self._send_batches())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_open = False
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._wake.set()
        await self._group.__aexit__(None, None, None)


def _set_result(future: asyncio.Future[Sequence[int]], reply: Reply) -> None:
    if future.done():  # the caller was cancelled
        return
    if isinstance(reply, StoreUnavailable):
        future.set_exception(StoreUnavailable(str(reply), reply.trip))
        future.exception()  # mark as retrieved, because the caller may be gone
    else:
        future.set_result(reply)
