"""Counters that instances share, in Redis 7 or Valkey: one script, one round trip a call.

In a cluster they are all on one server, so that a call's claims are decided in one step; the
script runs once for all calls that ask at the same time. The server's clock counts. The user of
the ACL needs ``+evalsha +eval`` and, on the keys of ``prefix``, what ``counters.lua`` calls.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Literal, Self, cast

from redis.exceptions import NoScriptError

from proxy.limits.stores import wire
from proxy.limits.stores.batch import BATCH, Batcher, Reply, ScriptCall
from proxy.limits.stores.store import NO_LEDGER, LedgerRun, StoreUnavailable
from proxy.limits.stores.wire import BillState, Wire
from proxy.runtime.frozen import frozen
from proxy.runtime.redis import REDIS_ERRORS, RedisServer, cause_of_fault
from proxy.types.limit import Claim
from proxy.types.outcome import CounterState, LimitDecision, outcome

TIMEOUT_S = 0.1
MOST_UNDER_WAY = 100_000
MOST_BILLS = 10_000
Known = Literal["charged", "perhaps_settled", "perhaps_charged"]
SETTLE: Mapping[Known, Callable[[str, Sequence[int]], str]] = {
    "charged": wire.settle,
    "perhaps_settled": wire.settle_again,
    "perhaps_charged": wire.settle_late,
}


@frozen
class UnsettledCall:
    """A call that is not settled: by which claims, what is known of its charge, and whether it
    has a place that is leased."""

    keys: tuple[str, ...]
    claims: str
    known: Known
    leased: bool


def _settling(call: UnsettledCall, actuals: Sequence[int]) -> ScriptCall:
    return ScriptCall(call.keys, SETTLE[call.known](call.claims, actuals))


@dataclass(slots=True)
class RedisStore:
    """A ``Store``, to be entered before use. Whatever goes wrong is ``StoreUnavailable``.

    A call is settled by the instance that admitted it. A budget is fresh once for each ``ledger``.
    ``time_ms`` replaces the server's clock, for tests.
    """

    server: RedisServer
    utc: Callable[[], float]
    prefix: str = "headrace"
    time_ms: Callable[[], int] | None = None
    ledger: LedgerRun = NO_LEDGER
    most_bills: int = MOST_BILLS
    _bills: dict[str, tuple[str, BillState]] = field(default_factory=dict)  # that are not booked
    _calls: dict[str, UnsettledCall] = field(default_factory=dict)
    _wire: Wire = field(init=False)
    _batches: Batcher = field(init=False)
    _script: str = field(init=False, repr=False)
    _sha: str = field(init=False)

    def __post_init__(self) -> None:
        self._wire = Wire(self.utc, self.prefix)
        self._batches = Batcher(self._flush)
        self._script = files("proxy.limits.stores").joinpath("counters.lua").read_text()
        self._sha = hashlib.sha1(self._script.encode(), usedforsecurity=False).hexdigest()

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        """As promised. Where it is not known whether the store has charged the call, it can be
        settled, and must be."""
        keys = self._wire.keys(request_id, claims)
        text = self._wire.claims(claims)
        leased = any(claim.limit.is_leased for claim in claims)
        try:
            readings = await self._batches.put(ScriptCall(keys, wire.admit(text, self.ledger.id)))
        except (StoreUnavailable, asyncio.CancelledError):
            call = UnsettledCall(keys=keys, claims=text, known="perhaps_charged", leased=leased)
            self._remember(request_id, call)
            raise
        decided = outcome(claims, readings)
        if decided.admitted and request_id not in self._calls:
            call = UnsettledCall(keys=keys, claims=text, known="charged", leased=leased)
            self._remember(request_id, call)
        return decided

    async def settle(self, request_id: str, actuals: Sequence[int]) -> None:
        """As promised; after a ``StoreUnavailable`` it may be tried again until it comes through.

        Where the store has lost the charge, the money that was really spent is charged. By then the
        ledger has the row of a call of an outage.
        """
        call = self._calls.pop(request_id, None)
        if call is None:
            return
        question = _settling(call, actuals)
        if call.known == "perhaps_charged":
            text = wire.charge(call.claims, actuals, self.ledger.id, whole=False)
            question = ScriptCall(call.keys, text)
        try:
            await self._batches.put(question)
        except (StoreUnavailable, asyncio.CancelledError):
            self._missed(request_id, call)
            raise

    def settle_soon(
        self, request_id: str, actuals: Sequence[int], failed: Callable[[StoreUnavailable], None]
    ) -> None:
        """Settle with the next trip, and before whatever is asked from now on; nobody waits for
        it. ``failed`` is called if it did not come through: then ``settle`` may be tried."""
        call = self._calls.pop(request_id, None)
        if call is None:
            return

        def callback(reply: Reply) -> None:
            if isinstance(reply, StoreUnavailable):
                self._missed(request_id, call)
                failed(reply)

        try:
            self._batches.piggyback(_settling(call, actuals), callback)
        except StoreUnavailable as full:
            callback(full)

    def _missed(self, request_id: str, call: UnsettledCall) -> None:
        known = "perhaps_settled" if call.known == "charged" else call.known
        self._remember(request_id, replace(call, known=known))

    async def release(self, request_id: str) -> None:
        call = self._calls.get(request_id)
        if call is not None:
            await self.settle(request_id, [0] * (len(call.keys) - 1))

    async def renew(self) -> None:
        """As promised, some calls at a time: others are admitted between. Also of calls that the
        store took for lost meanwhile, but not of those that it never charged. Bills that are not
        booked are kept in the same way, after the calls."""
        names = [name for name, call in self._calls.items() if call.leased]
        for at in range(0, len(names), BATCH):
            known = [self._calls.get(name) for name in names[at : at + BATCH]]  # some have ended
            questions = [ScriptCall(call.keys, wire.renew(call.claims)) for call in known if call]
            replies = [self._batches.put(question) for question in questions]
            for reply in replies:
                await reply
        for bill, (owner, state) in list(self._bills.items()):
            if not await self._bill(bill, owner, state) or state == "booked":
                self._bills.pop(bill, None)

    async def charge(self, charge_id: str, claims: Sequence[Claim], *, whole: bool = False) -> None:
        keys = self._wire.keys(charge_id, claims)
        amounts = [claim.amount for claim in claims]
        text = wire.charge(self._wire.claims(claims), amounts, self.ledger.id, whole=whole)
        await self._batches.put(ScriptCall(keys, text))

    async def bill_once(self, name: str, owner: str) -> bool:
        """As promised. A bill beyond ``most_bills`` is booked at once: a kill could lose it."""
        is_kept = self.ledger.run and len(self._bills) < self.most_bills
        state: BillState = "charged" if is_kept else "booked"
        has_bill = await self._bill(name, owner, state)
        if has_bill and state == "charged":
            self._bills[name] = owner, state
        return has_bill

    async def book(self, name: str) -> None:
        if name in self._bills:
            owner, _ = self._bills[name]
            self._bills[name] = owner, "booked"
            await self._bill(name, owner, "booked")
            self._bills.pop(name, None)  # ``renew`` may have booked it meanwhile

    async def _bill(self, name: str, owner: str, state: BillState) -> bool:
        """Store the state of a bill on the server. Return True if it is this owner's."""
        key, owner = f"{self.prefix}:billed:{name}", f"{self.ledger.run or 0} {owner}"
        try:
            reply = await self._run(key, 1, key, "", wire.bill(state, owner, self.ledger.dead()))
        except REDIS_ERRORS as error:
            raise StoreUnavailable(cause_of_fault(error), trip=object()) from None
        return bool(reply[0][0])

    async def read(self, claims: Sequence[Claim]) -> tuple[CounterState, ...]:
        keys = self._wire.keys("", claims)
        question = ScriptCall(keys, wire.read(self._wire.claims(claims), self.ledger.id))
        return outcome(claims, await self._batches.put(question)).standings

    @property
    def certain(self) -> bool:
        return True

    @property
    def under_way(self) -> int:
        """How many calls this instance has admitted and not settled."""
        return len(self._calls)

    def _remember(self, request_id: str, call: UnsettledCall) -> None:
        if len(self._calls) >= MOST_UNDER_WAY:
            del self._calls[next(iter(self._calls))]  # it stays charged, its lease ends
        self._calls[request_id] = call

    async def _flush(self, questions: Sequence[ScriptCall]) -> list[Reply]:
        """Run the script once for all."""
        keys = [key for question in questions for key in question.keys]
        time = str(self.time_ms()) if self.time_ms else ""
        texts = [question.text for question in questions]
        try:
            return cast("list[Reply]", await self._run(keys[0], len(keys), *keys, time, *texts))
        except REDIS_ERRORS as error:
            unavailable = StoreUnavailable(cause_of_fault(error), trip=object())
            return [unavailable] * len(questions)

    async def _run(self, key: str, *rest: str | int) -> Any:
        try:
            return await self.server.run(key, "EVALSHA", self._sha, *rest)
        except NoScriptError:  # a server that has just started
            return await self.server.run(key, "EVAL", self._script, *rest)

    async def ping(self) -> None:
        """See whether the store answers. Raises ``StoreUnavailable``."""
        await self.read(())

    async def __aenter__(self) -> Self:
        await self._batches.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Ask what still waits to be asked, then hang up. The rows of all bills are about to be
        written."""
        with suppress(StoreUnavailable):
            for name in list(self._bills):
                await self.book(name)
        await self._batches.__aexit__(*exc_info)
        await self.server.aclose()
