"""Counters shared by all instances, in Redis 7 or Valkey.

The script ``counters.lua`` executes all calls of a round trip. In a cluster all keys are on one
server, so that the claims of a call are decided atomically. The clock is the server's. The ACL user
needs ``+evalsha +eval`` and, on keys of ``prefix``, the commands of ``counters.lua``.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Literal, Self, cast

from redis.exceptions import NoScriptError

from proxy.limits.stores.redis_script import (
    BATCH_SIZE,
    Batcher,
    ClaimEncoder,
    Reply,
    ScriptCall,
    to_call_json,
    to_json_list,
)
from proxy.limits.stores.store import BILL_TTL_S, NO_LEDGER, LedgerRun, StoreUnavailable
from proxy.runtime.frozen import frozen
from proxy.runtime.redis import REDIS_ERRORS, RedisServer, get_fault_cause
from proxy.types.limit import LEASE_S, Claim, CounterState, LimitDecision, build_limit_decision

TIMEOUT_S = 0.1
MAX_IN_FLIGHT = 100_000
MAX_BILLS = 10_000
CALL_TTL_MS = 86_400_000
CHARGE_TTL_MS = 600_000
BillState = Literal["charged", "booked"]
ChargeVerb = Literal["settle", "again", "late"]


@frozen
class UnsettledCall:
    """A call that is not settled, with its Redis keys and its claims as JSON.

    ``settle_verb`` is "again" after a failed settlement, "late" after a failed admission or a loss.
    """

    keys: tuple[str, ...]
    claims: str
    settle_verb: ChargeVerb
    has_lease: bool


@dataclass(slots=True)
class RedisStore:
    """A ``CounterStore``. Enter it before use. Every failure raises ``StoreUnavailable``.

    The instance that admits a call must settle it. A budget is reported as fresh to each ``ledger``
    until it is restored. ``time_ms`` replaces the server's clock in tests.
    """

    server: RedisServer
    utc: Callable[[], float]
    prefix: str = "headrace"
    time_ms: Callable[[], int] | None = None
    ledger: LedgerRun = NO_LEDGER
    max_bills: int = MAX_BILLS
    _unbooked_bills: dict[str, tuple[str, BillState]] = field(default_factory=dict)
    _calls: dict[str, UnsettledCall] = field(default_factory=dict)
    _encoder: ClaimEncoder = field(init=False)
    _batcher: Batcher = field(init=False)
    _script: str = field(init=False, repr=False)
    _sha: str = field(init=False)

    def __post_init__(self) -> None:
        self._encoder = ClaimEncoder(self.utc, self.prefix)
        self._batcher = Batcher(self._send_batch)
        self._script = files("proxy.limits.stores").joinpath("counters.lua").read_text()
        self._sha = hashlib.sha1(self._script.encode(), usedforsecurity=False).hexdigest()

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        """Check and charge all claims. After an error the call must be settled as well."""
        keys = self._encoder.encode_keys(request_id, claims)
        text = self._encoder.encode_claims(claims)
        has_lease = any(claim.limit.is_leased for claim in claims)
        call = UnsettledCall(keys, text, settle_verb="settle", has_lease=has_lease)
        admission = to_call_json("admit", CALL_TTL_MS, text, f'"{self.ledger.id}"')
        try:
            readings = await self._batcher.submit(ScriptCall(keys, admission))
        except (StoreUnavailable, asyncio.CancelledError):
            self._add_call(request_id, replace(call, settle_verb="late"))
            raise
        decision = build_limit_decision(claims, readings)
        if decision.admitted and request_id not in self._calls:
            self._add_call(request_id, call)
        return decision

    async def settle(self, request_id: str, actuals: Sequence[int]) -> None:
        """Settle a call. After ``StoreUnavailable`` it may be repeated until it succeeds.

        If the store has lost the charge, actual spend is charged to the budgets. A settlement that
        may have succeeded before charges nothing then: ``restore`` includes the call.
        """
        call = self._calls.pop(request_id, None)
        if call is None:
            return
        try:
            await self._batcher.submit(self._make_settlement(call, actuals))
        except (StoreUnavailable, asyncio.CancelledError):
            self._restore_unsettled_call(request_id, call)
            raise

    def settle_deferred(
        self, request_id: str, actuals: Sequence[int], on_error: Callable[[StoreUnavailable], None]
    ) -> None:
        """Settle a call with the next round trip, without waiting."""
        call = self._calls.pop(request_id, None)
        if call is None:
            return

        def callback(reply: Reply) -> None:
            if isinstance(reply, StoreUnavailable):
                self._restore_unsettled_call(request_id, call)
                on_error(reply)

        try:
            self._batcher.submit_lingering(self._make_settlement(call, actuals), callback)
        except StoreUnavailable as full:
            callback(full)

    def _restore_unsettled_call(self, request_id: str, call: UnsettledCall) -> None:
        verb: ChargeVerb = "late" if call.settle_verb == "late" else "again"
        self._add_call(request_id, replace(call, settle_verb=verb))

    def charge_lost_calls(self) -> None:
        """Let settlements of the calls in flight charge actual spend even if they are repeated."""
        for id, call in self._calls.items():
            if call.settle_verb == "settle":
                self._calls[id] = replace(call, settle_verb="late")

    async def settle_unused(self, request_id: str) -> None:
        call = self._calls.get(request_id)
        if call is not None:
            await self.settle(request_id, [0] * (len(call.keys) - 1))

    async def renew(self) -> None:
        """Renew leases in batches, so that admissions run in between.

        Restores an expired lease, unless the call was never charged. Then renews claims on
        background responses whose ledger rows are not written yet.
        """
        ids = [request_id for request_id, call in self._calls.items() if call.has_lease]
        for start in range(0, len(ids), BATCH_SIZE):
            calls = map(self._calls.get, ids[start : start + BATCH_SIZE])  # some have ended
            replies = [
                self._batcher.submit(ScriptCall(call.keys, to_call_json("renew", 0, call.claims)))
                for call in calls
                if call
            ]
            for reply in replies:
                await reply
        for name, (owner, state) in list(self._unbooked_bills.items()):
            if not await self._record_bill(name, owner, state) or state == "booked":
                self._unbooked_bills.pop(name, None)

    async def charge(self, id: str, claims: Sequence[Claim]) -> None:
        """Charge budgets even beyond their amount, once per ``id`` within 10 minutes."""
        keys = self._encoder.encode_keys(id, claims)
        charge = UnsettledCall(keys, self._encoder.encode_claims(claims), "late", has_lease=False)
        amounts = [claim.amount for claim in claims]
        await self._batcher.submit(self._make_settlement(charge, amounts))

    async def restore(self, claims: Sequence[Claim]) -> bool:
        keys, amounts = self._encoder.encode_keys("", claims), [claim.amount for claim in claims]
        parts = self._encoder.encode_claims(claims), to_json_list(amounts), f'"{self.ledger.id}"'
        await self._batcher.submit(ScriptCall(keys, to_call_json("whole", 0, *parts)))
        return True

    def _make_settlement(self, call: UnsettledCall, actuals: Sequence[int]) -> ScriptCall:
        parts = call.claims, to_json_list(actuals), f'"{self.ledger.id}"'
        return ScriptCall(call.keys, to_call_json(call.settle_verb, CHARGE_TTL_MS, *parts))

    async def claim_bill(self, name: str, owner: str) -> bool:
        """Return True if ``owner`` is the first to bill ``name``.

        If ``max_bills`` bills wait for their ledger rows, a further bill is marked as booked at
        once. A crash may then lose its row.
        """
        needs_booking = self.ledger.run and len(self._unbooked_bills) < self.max_bills
        state: BillState = "charged" if needs_booking else "booked"
        is_first = await self._record_bill(name, owner, state)
        if is_first and state == "charged":
            self._unbooked_bills[name] = owner, state
        return is_first

    async def mark_bill_booked(self, name: str) -> None:
        if name in self._unbooked_bills:
            owner, _ = self._unbooked_bills[name]
            self._unbooked_bills[name] = owner, "booked"
            await self._record_bill(name, owner, "booked")
            self._unbooked_bills.pop(name, None)  # ``renew`` may have booked it

    async def _record_bill(self, name: str, owner: str, state: BillState) -> bool:
        """Claim a bill for ``owner`` and store its state. Return False if another owns it."""
        key, owner = f"{self.prefix}:billed:{name}", f"{self.ledger.run or 0} {owner}"
        ttl_ms = 1000 * (LEASE_S if state == "charged" else BILL_TTL_S)
        dead = ",".join(f'"{run}"' for run in self.ledger.get_dead_runs())
        text = to_call_json(state, ttl_ms, f'"{owner}"', f"[{dead}]")
        try:
            reply = await self._run_script(key, 1, key, "", text)
        except REDIS_ERRORS as error:
            raise StoreUnavailable(get_fault_cause(error), trip=object()) from None
        return bool(reply[0][0])

    async def read(self, claims: Sequence[Claim]) -> tuple[CounterState, ...]:
        text = to_call_json("read", 0, self._encoder.encode_claims(claims), f'"{self.ledger.id}"')
        readings = await self._batcher.submit(
            ScriptCall(self._encoder.encode_keys("", claims), text)
        )
        return build_limit_decision(claims, readings).counter_states

    @property
    def has_all_updates(self) -> bool:
        return True

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    def _add_call(self, request_id: str, call: UnsettledCall) -> None:
        if len(self._calls) >= MAX_IN_FLIGHT:
            del self._calls[next(iter(self._calls))]  # stays charged; its lease expires
        self._calls[request_id] = call

    async def _send_batch(self, calls: Sequence[ScriptCall]) -> list[Reply]:
        keys = [key for call in calls for key in call.keys]
        time = str(self.time_ms()) if self.time_ms else ""
        texts = [call.text for call in calls]
        try:
            return cast(
                "list[Reply]", await self._run_script(keys[0], len(keys), *keys, time, *texts)
            )
        except REDIS_ERRORS as error:
            return [StoreUnavailable(get_fault_cause(error), trip=object())] * len(calls)

    async def _run_script(self, key: str, *arguments: str | int) -> Any:
        try:
            return await self.server.run_command(key, "EVALSHA", self._sha, *arguments)
        except NoScriptError:  # the server has restarted
            return await self.server.run_command(key, "EVAL", self._script, *arguments)

    async def ping(self) -> None:
        await self.read(())

    async def __aenter__(self) -> Self:
        await self._batcher.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Book all bills, because their rows are about to be written, and close the connection."""
        with suppress(StoreUnavailable):
            for name in list(self._unbooked_bills):
                await self.mark_bill_booked(name)
        await self._batcher.__aexit__(*exc_info)
        await self.server.aclose()
