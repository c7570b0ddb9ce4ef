"""The shared store against a real server, and both stores against each other."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.limits.kinds import KINDS
from proxy.limits.stores.redis import RedisStore
from proxy.limits.stores.store import CounterStore, LedgerRun, StoreUnavailable
from proxy.runtime.redis import create_client
from proxy.runtime.redis_settings import parse_redis_url
from proxy.types.limit import Claim, Limit
from proxy.types.windows import Calendar
from tests.limits.conftest import shared
from tests.limits.sample_limits import MONTH, PLACES, REQUESTS, TOKENS, Clock, claims
from tests.limits.stores.held_server import HeldServer
from tests.servers import Cluster, Server

LIMITS = (
    Limit("odd", KINDS["requests"], 7, 60),
    Limit("bursty", KINDS["requests"], 3, 10, burst=5, warn_at=0.5),
    Limit("tokens", KINDS["tokens"], 1000, 60, warn_at=0.8),
    Limit("many-tokens", KINDS["tokens"], 1_234_567, 3600),
    Limit("shadow-tokens", KINDS["tokens"], 50, 60, shadow=True),
    Limit("minute-money", KINDS["usd"], 500, Calendar("minute"), warn_at=0.8),
    Limit("day-money", KINDS["usd"], 900, Calendar("day", "Europe/Berlin")),
    Limit("shadow-money", KINDS["usd"], 100, Calendar("hour"), shadow=True, warn_at=0.9),
    Limit("places", KINDS["concurrency"], 3, lease_s=30, warn_at=1.0),
    Limit("shadow-places", KINDS["concurrency"], 1, lease_s=5, shadow=True),
)
CHANGED = {limit.key: replace(limit, amount=limit.amount * 3 // 2) for limit in LIMITS}
CALLS = st.integers(0, 3)
EIGHTHS = st.integers(-1, 9)  # negative claims are never admitted
STEP = st.one_of(
    st.tuples(st.just("admit"), CALLS, st.lists(EIGHTHS, min_size=3, max_size=3)),
    st.tuples(st.just("admit"), CALLS, st.lists(EIGHTHS, min_size=3, max_size=3)),
    st.tuples(st.just("settle"), CALLS, st.lists(EIGHTHS, min_size=3, max_size=3)),
    st.tuples(st.just("settle"), CALLS, st.lists(EIGHTHS, min_size=3, max_size=3)),
    st.tuples(st.just("release"), CALLS, st.just([])),
    st.tuples(st.just("pass"), st.integers(0, 12_000), st.just([])),
    st.tuples(st.just("pass"), st.sampled_from([1, 60_000, 3_600_000, 86_400_000]), st.just([])),
    st.tuples(st.just("change"), st.just(0), st.just([])),
)
Step = tuple[str, int, list[int]]


@dataclass
class StepRunner:
    """Applies the same steps to a store and returns their results."""

    store: CounterStore
    limits: list[Limit]
    under_way: dict[str, list[Claim]] = field(default_factory=dict)

    async def step(self, verb: str, number: int, eighths: list[int]) -> object:
        name = f"call-{number}"
        if verb == "admit":
            return await self._request_decision(name, eighths)
        requests = self.under_way.pop(name, [])
        if verb == "settle":
            actuals = [_part(claim.limit, n) for claim, n in zip(requests, eighths, strict=False)]
            await self.store.settle(name, actuals)
        else:
            await self.store.settle_unused(name)
        return None

    async def _request_decision(self, name: str, eighths: list[int]) -> object:
        requests = [
            Claim(limit, "key:support-widget", _part(limit, n))
            for limit, n in zip(self.limits, eighths, strict=False)
        ]
        outcome = await self.store.admit(name, requests)
        if outcome.admitted:
            self.under_way.setdefault(name, requests)
        return outcome.admitted, list(outcome.readings)

    async def standings(self) -> object:
        single_claims = [Claim(limit, "key:support-widget", 1) for limit in self.limits]
        return await self.store.read(single_claims)


def _part(limit: Limit, eighths: int) -> int:
    return -(-limit.capacity * eighths // 8) if eighths < 9 else limit.capacity + 1


@pytest.fixture(params=["shared_server", "shared_cluster"])
def server_or_cluster(request: pytest.FixtureRequest) -> Server | Cluster:
    result: Server | Cluster = request.getfixturevalue(request.param)
    return result


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    limits=st.lists(st.sampled_from(LIMITS), min_size=1, max_size=3, unique=True),
    steps=st.lists(STEP, min_size=20, max_size=60),
)
def test_memory_and_redis_agree_on_any_sequence(
    limits: list[Limit], steps: list[Step], server_or_cluster: Server | Cluster
) -> None:
    async def run() -> None:
        clock = Clock()
        async with shared(server_or_cluster, clock) as store:
            walk, context = (
                StepRunner(clock.memory(), list(limits)),
                StepRunner(store, list(limits)),
            )
            for verb, number, eighths in steps:
                if verb == "pass":
                    clock.ms += number
                elif verb == "change":
                    walk.limits = context.limits = [CHANGED[limit.key] for limit in limits]
                else:
                    step = (verb, number, eighths)
                    assert await walk.step(*step) == await context.step(*step)
                assert await walk.standings() == await context.standings()

    asyncio.run(run())


async def test_script_is_loaded_again_after_a_flush(shared_server: Server) -> None:
    async with shared(shared_server) as store:
        await store.admit("first", claims((MONTH, 1)))
        with shared_server.admin as admin:
            admin.script_flush()

        await store.admit("second", claims((MONTH, 1)))

        assert (await store.read(claims((MONTH, 0))))[0].used == 2


async def test_clock_of_the_server_is_used(shared_server: Server) -> None:
    limit = Limit("fast", KINDS["requests"], 10, 1)
    async with shared(shared_server) as store:
        started_at = time.monotonic()
        await store.admit("first", claims((limit, 10)))
        wait = None
        for number in count():
            outcome = await store.admit(f"call-{number}", claims((limit, 5)))
            if outcome.longest_refusal is None:
                break
            wait = wait or outcome.longest_refusal.retry_after_s

        assert wait is not None
        assert 0 < wait <= 0.5 <= time.monotonic() - started_at + 0.002


async def test_hanging_server_counts_nothing_twice(server: Server) -> None:
    call_claims = claims((MONTH, 10), (PLACES, 1))
    async with shared(server, timeout_s=0.2) as store:
        await store.admit("settled-late", call_claims)
        server.signal(signal.SIGSTOP)
        with pytest.raises(StoreUnavailable):
            await store.settle("settled-late", [4, 0])
        with pytest.raises(StoreUnavailable):
            await store.admit("perhaps", call_claims)
        server.signal(signal.SIGCONT)
        await _until_it_answers(store)

        for _ in range(2):
            await store.settle("settled-late", [4, 0])
            await store.settle("perhaps", [7, 0])

        standings = await store.read(call_claims)
        assert [standing.used for standing in standings] == [11, 0]


async def test_flush_keeps_running_spend_and_reports_loss(server: Server) -> None:
    call_claims = claims((MONTH, 10), (TOKENS, 10), (PLACES, 1))
    async with shared(server) as store:
        await store.admit("before", call_claims)
        await store.admit("during", call_claims)
        await store.settle("before", [8, 8, 0])
        with server.admin as admin:
            admin.flushall()

        await store.settle("during", [7, 7, 0])

        standings = await store.read(call_claims)
        assert [standing.used for standing in standings] == [7, 0, 0]
        decision_after = await store.admit("after", call_claims)
        assert decision_after.counter_states[0].is_fresh
        await store.restore(claims((MONTH, 15)))
        await store.restore(claims((MONTH, 15)))
        assert (await store.read(call_claims))[0].used == 25


@pytest.mark.parametrize("way", ["charge", "settle", "settle deferred"])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("is_lost", [False, True], ids=["kept", "lost"])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("is_begun", [False, True], ids=["cut off before", "cut off after"])
async def test_spend_of_an_outage_is_counted_once(
    is_begun: bool,
    replicas: int,
    is_lost: bool,
    is_restarted: bool,
    way: str,
    shared_server: Server,
) -> None:
    """One of two replicas is disconnected before or after the window begins."""
    server = HeldServer(create_client(shared_server.at.urls, 5.0, cluster=shared_server.at.cluster))
    prefix, rows = uuid4().hex, {"one": 0, "two": 0}

    async def spend(store: RedisStore, amount: int) -> None:
        ledger, call = store.ledger.id, uuid4().hex
        decided = await store.admit(call, claims((MONTH, amount)))
        if decided.counter_states[0].is_fresh:
            await store.restore(claims((MONTH, rows[ledger])))
        await store.settle(call, [amount])
        rows[ledger] += amount

    async with (
        RedisStore(server, time.time, prefix, ledger=LedgerRun("one")) as single_store,
        shared(shared_server, prefix=prefix, ledger=LedgerRun("two")) as two,
    ):
        if is_begun:
            await spend(single_store, 3)
            await spend(two, 2)
        if is_lost:
            with shared_server.admin as admin:
                admin.delete(*admin.keys(f"{prefix}*") or [""])
        if replicas == 2:
            await spend(two, 5)
        unsent = 4 if is_restarted else 0  # spend of a process that ended during the outage
        rows["one"] += unsent + 10
        if way == "charge":
            await single_store.charge("outage", claims((MONTH, 10)))
        else:
            await _settle_perhaps_charged(single_store, server, is_deferred=way != "settle")
        await spend(single_store, 1)
        await spend(two, 1)

        missing = unsent if is_begun and not is_lost else 0
        [standing] = await single_store.read(claims((MONTH, 0)))
        assert standing.used == sum(rows.values()) - missing


async def _settle_perhaps_charged(
    store: RedisStore, server: HeldServer, *, is_deferred: bool
) -> None:
    """Settle a call at 10 nano-USD whose admission got no reply."""
    server.is_away = True
    with pytest.raises(StoreUnavailable):
        await store.admit("outage", claims((MONTH, 12)))
    server.is_away = False
    if is_deferred:
        store.settle_deferred("outage", [10], lambda error: pytest.fail(str(error)))
    else:
        await store.settle("outage", [10])


async def test_url_has_a_user_and_errors_hide_the_password(server: Server) -> None:
    rights = re.findall(r"[+][a-z]+", _quote_settings_page("The ACL's user needs", "in a cluster"))
    with server.admin as admin:
        admin.execute_command(
            "ACL", "SETUSER", "limits", "on", ">hr-test-password", "~headrace:*", *rights
        )
    warned = replace(MONTH, warn_at=0.01)
    call_claims = claims((REQUESTS, 2), (TOKENS, 2), (warned, 2), (PLACES, 1))
    for word, works in (("hr-test-password", True), ("hr-wrong-password", False)):
        position = parse_redis_url(f"redis://limits:{word}@127.0.0.1:{server.port}/0")
        async with RedisStore(
            create_client(position.urls, 5, cluster=position.cluster), time.time
        ) as store:
            if works:
                for name in ("first", "second"):
                    assert (await store.admit(name, call_claims)).admitted
                    await store.settle(name, [1, 1, 1, 0])
                continue
            with pytest.raises(StoreUnavailable) as refused:
                await store.admit("call", claims((REQUESTS, 1)))
            assert word not in repr(refused.value)
            assert word not in repr(store)


def _quote_settings_page(begin: str, end: str) -> str:
    text = Path("docs/settings.md").read_text()
    return text[text.index(begin) : text.index(end, text.index(begin))]


async def _until_it_answers(store: RedisStore) -> None:
    async with asyncio.timeout(10):
        while True:
            with suppress(StoreUnavailable):
                return await store.ping()
