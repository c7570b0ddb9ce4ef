"""Two proxies with one Redis charge a background response once, also during an outage."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import ClientSession

from proxy.settings import LedgerLocation
from proxy.types.limit import LEASE_S
from tests.cli.test_init import serving
from tests.conftest import KEY, Proxy, running_proxy
from tests.dialects.test_stored_state import SECRET, StatefulProxy, policy, stateful_proxy
from tests.doubles import ReceivedRequest, ScriptedUpstream, Wire, respond, response
from tests.ledger.records import stored_rows
from tests.passthrough.listed_policies import BEARER, RANKED, RERANK, policies
from tests.servers import Server, eventually

PRICED = 11_000
QUEUED = response(status="queued", background=True, output=[], usage=None)
RESULT = response(background=True)


@asynccontextmanager
async def two_replicas(
    folder: Path, upstream: ScriptedUpstream, server: Server, limit: str = ""
) -> AsyncIterator[tuple[StatefulProxy, StatefulProxy]]:
    policy_text = policy(upstream.url)
    if limit:
        policy_text = policy_text.replace(
            "policies:\n", f"policies:\n  default: {{limits: [{limit}]}}\n"
        )
    proxy_with_shared_store: Any = {
        "redis": server.at,
        "cache_secret": "a secret of tests",
        "replicas": 2,
    }
    async with AsyncExitStack() as opened:
        single_house, other_house = [
            await opened.enter_async_context(
                stateful_proxy(folder / name, upstream, policy_text, **proxy_with_shared_store)
            )
            for name in ("one", "two")
        ]
        yield single_house, other_house


async def get_response(stateful_proxy: StatefulProxy, response_id: str) -> int:
    headers = {"authorization": f"Bearer {KEY}"}
    async with stateful_proxy.session.get(
        f"/v1/responses/{response_id}", headers=headers
    ) as response:
        json.loads(await response.read())
        return response.status


async def costs_by_proxy(*requests: tuple[StatefulProxy, int]) -> list[list[int]]:
    """Return the costs of each proxy's calls, once it has ``count`` of them."""
    return [
        [record.billing.cost for record in await stateful_proxy.proxy.sink.wait(count)]
        for stateful_proxy, count in requests
    ]


async def test_concurrent_reads_bill_a_response_once(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    async with two_replicas(tmp_path, upstream, server) as (single_house, other_house):
        upstream.answer_with(respond(QUEUED))
        response_id = [
            await single_house.id_of(background=True),
            await other_house.id_of(background=True),
        ]
        assert response_id[0] == response_id[1]
        upstream.answer_with(respond(RESULT))

        asking = [
            get_response(stateful_proxy, response_id[0])
            for stateful_proxy in (single_house, other_house)
            for _ in range(6)
        ]
        assert await asyncio.gather(*asking) == [200] * 12

        local_value, context = await costs_by_proxy((single_house, 7), (other_house, 7))
        assert sorted(local_value + context) == [0] * 13 + [PRICED]


async def test_closed_limit_refuses_reads_until_store_returns(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    limit = "{name: money, usd: 1 per month, on_store_error: closed}"
    async with two_replicas(tmp_path, upstream, server, limit) as (single_house, other_house):
        upstream.answer_with(respond(QUEUED))
        response_id = await single_house.id_of(background=True)
        upstream.answer_with(respond(RESULT))
        server.signal(signal.SIGSTOP)  # pauses the server, which keeps its data
        assert await get_response(other_house, response_id) == 503
        server.signal(signal.SIGCONT)

        async with asyncio.timeout(30):
            while await get_response(other_house, response_id) != 200:  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.1)
        assert await get_response(single_house, response_id) == 200

        [local_value] = await costs_by_proxy((single_house, 2))
        context = [record.billing.cost for record in other_house.proxy.sink.records]
        assert sum(cost or 0 for cost in local_value + context) == PRICED


def bills_in(server: Server) -> list[tuple[str, int]]:
    """Return the state of each bill and its TTL in seconds."""
    with server.admin as admin:
        keys = list(admin.keys("*:billed:*"))
        return [(admin.get(key).decode().split()[0], admin.ttl(key)) for key in keys]


def costs_in(*ledgers: Path) -> list[int]:
    rows = [row for path in ledgers if path.exists() for row in stored_rows(path, "attempts")]
    return [row["cost_nano_usd"] for row in rows if row["cost_nano_usd"]]


@pytest.mark.parametrize("is_same", [True, False], ids=["same ledger", "another replica"])
@pytest.mark.parametrize("is_written", [False, True], ids=["before its row", "after its row"])
async def test_killed_proxy_loses_and_repeats_no_charge(
    is_written: bool, is_same: bool, tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    first_path, second = tmp_path / "first.db", tmp_path / ("first.db" if is_same else "second.db")
    environ = {
        "HEADRACE_REDIS_URL": server.url,
        "HEADRACE_SECRET": SECRET,
        "HEADRACE_LEDGER": f"sqlite:{first_path}",
        "UPSTREAM_KEY": "sk",
    }
    policy_text = policy(upstream.url)
    upstream.answer_with(respond(QUEUED))
    async with (
        serving(tmp_path / "one", policy_text, **environ) as (served, url),
        ClientSession(base_url=url) as session,
    ):
        response_id = await StatefulProxy(cast(Any, None), session, upstream).id_of(background=True)
        upstream.answer_with(respond(RESULT))
        await eventually(lambda: len(stored_rows(first_path)) == 1)
        with closing(sqlite3.connect(first_path, isolation_level=None)) as lock:
            if not is_written:
                lock.execute("BEGIN IMMEDIATE")
            assert (
                await get_response(StatefulProxy(cast(Any, None), session, upstream), response_id)
                == 200
            )
            if is_written:
                await eventually(lambda: [state for state, _ in bills_in(server)] == ["booked"])
            served.process.kill()
            await served.process.wait()
    if not (is_same or is_written):  # the lease of the killed process expires
        assert [(state, 0 < ttl <= LEASE_S) for state, ttl in bills_in(server)] == [
            ("charged", True)
        ]
        with server.admin as admin:
            admin.delete(*admin.keys("*:billed:*"))
    environ["HEADRACE_LEDGER"] = f"sqlite:{second}"
    async with (
        serving(tmp_path / "two", policy_text, **environ) as (two_replicas, url),
        ClientSession(base_url=url) as session,
    ):
        for _ in range(2):
            assert (
                await get_response(StatefulProxy(cast(Any, None), session, upstream), response_id)
                == 200
            )
        two_replicas.process.terminate()
        await two_replicas.process.wait()

    assert costs_in(*{first_path, second}) == [PRICED]
    [(state, ttl)] = bills_in(server)
    assert (state, ttl > 39 * 86_400) == ("booked", True)


async def test_exit_books_the_last_bill(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    ledger = LedgerLocation("sqlite", tmp_path / "ledger.db")
    proxy_with_shared_store: Any = {
        "redis": server.at,
        "cache_secret": "a secret of tests",
        "ledger": ledger,
    }
    upstream.answer_with(respond(QUEUED))
    async with stateful_proxy(
        tmp_path / "one", upstream, policy(upstream.url), **proxy_with_shared_store
    ) as single_house:
        response_id = await single_house.id_of(background=True)
        upstream.answer_with(respond(RESULT))
        assert await get_response(single_house, response_id) == 200

    assert costs_in(ledger.path) == [PRICED]
    assert [state for state, _ in bills_in(server)] == ["booked"]


FORM = "multipart/form-data; boundary=x"
PART = b'content-disposition: form-data; name="file"; filename="a"\r\n\r\nhippo'
BODIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "json": ("POST", "/v1/rerank", {"json": RERANK}),
    "form": ("POST", "/v1/files", {"data": b"--x\r\n%b\r\n--x--\r\n" % PART, "kind": FORM}),
    "bytes": ("GET", "/v1/files/file-1/content", {}),
}
MONEY = "{name: money, usd: 1 per month, unpriced: allow}"
PLACE = "{name: place, concurrency: 1}"


@asynccontextmanager
async def proxy_with_shared_store(
    folder: Path, upstream: ScriptedUpstream, server: Server, *limits: str
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    rules = policies(upstream.url, policy=f"{{limits: [{', '.join(limits)}]}}")
    sharing = {"redis": server.at, "cache_secret": "a secret of tests", "replicas": 2}
    async with running_proxy(folder / "policies", rules, **sharing) as proxy:
        yield proxy, proxy.client


async def post_listed(client: ClientSession, name: str) -> tuple[int, str | None]:
    method, path, body = BODIES[name]
    body = dict(body)
    headers = {**BEARER, **({"content-type": body.pop("kind")} if "kind" in body else {})}
    async with client.request(method, path, headers=headers, **body) as response:
        await response.read()
        return response.status, response.headers.get("x-headrace-error")


async def reply(request: ReceivedRequest, wire: Wire) -> None:
    is_bytes = request.path.endswith("/content")
    kind = "application/octet-stream" if is_bytes else "application/json"
    document = RANKED if request.path.endswith("/rerank") else {"id": "file-1"}
    raw = b"\0" * 100_000 if is_bytes else json.dumps(document).encode()
    await respond(raw, media_type=kind)(request, wire)


ROUNDS = 8
RULES = {"local": 9, "open": ROUNDS * len(BODIES), "closed": 0}
"""How many calls pass while the server is away: the half of 18, all, or none."""
REFUSED = {"local": (429, "rate_limit_exceeded"), "closed": (503, "limit_store_unavailable")}


async def test_store_error_follows_the_rule(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    upstream.then(*[reply] * sum(RULES.values()))
    server.kill()

    async def check_rule(rule: str) -> None:
        limit = f"{{name: few, requests: 18 per day, on_store_error: {rule}}}"
        async with proxy_with_shared_store(tmp_path / rule, upstream, server, limit) as (
            proxy,
            client,
        ):
            observed = [await post_listed(client, name) for _ in range(ROUNDS) for name in BODIES]
            records = await proxy.sink.wait(len(observed))
        maximum = RULES[rule]
        assert observed[:maximum] == [(200, None)] * maximum
        assert set(observed[maximum:]) == ({REFUSED[rule]} if rule in REFUSED else set())
        assert [record.status for record in records] == [status for status, _ in observed]

    for rule in RULES:
        (tmp_path / rule).mkdir()
    async with asyncio.timeout(20):
        await asyncio.gather(*map(check_rule, RULES))

    assert len(upstream.requests) == sum(RULES.values())


async def test_spend_during_an_outage_is_counted(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    upstream.then(*[reply] * 7)
    async with proxy_with_shared_store(tmp_path, upstream, server, MONEY, PLACE) as (proxy, client):
        assert await post_listed(client, "json") == (200, None)
        server.signal(signal.SIGSTOP)
        async with asyncio.timeout(20):
            during = [await post_listed(client, name) for _ in range(2) for name in BODIES]
        assert during == [(200, None)] * len(during)
        assert "headrace_limit_store_degraded 1.0" in await proxy.metrics()
        records = await proxy.sink.wait(1 + len(during))
        asyncio.get_running_loop().call_later(0.3, server.signal, signal.SIGCONT)
    server.signal(signal.SIGCONT)

    [budget] = [key for key in server.command("KEYS", "*").split() if "usd:money" in key]
    with server.admin as admin:
        total_spend = sum(
            int(value) for name, value in admin.hgetall(budget).items() if name.isdigit()
        )
    assert (
        total_spend
        == sum(bill.cost or 0 for record in records for bill in record.billing.bills)
        > 0
    )


async def test_upload_during_an_outage_is_counted(
    tmp_path: Path, upstream: ScriptedUpstream, server: Server
) -> None:
    upstream.then(reply, reply)
    begin, middle, end = b"--x\r\n" + PART, b"hippo" * 100_000, b"\r\n--x--\r\n"

    async def pieces() -> AsyncIterator[bytes]:
        yield begin
        await eventually(lambda: upstream.connections > 0)  # so it was admitted
        server.kill()
        yield middle
        yield end

    async with proxy_with_shared_store(tmp_path, upstream, server, PLACE) as (proxy, client):
        length = str(len(begin + middle + end))
        headers = {**BEARER, "content-type": FORM, "content-length": length}
        async with client.post("/v1/files", headers=headers, data=pieces()) as response:
            assert (response.status, await response.json()) == (200, {"id": "file-1"})
        async with asyncio.timeout(20):
            values_after = await post_listed(client, "form")
        server.start()  # else the proxy's exit would wait for it
        first_value, second = await proxy.sink.wait(2)

    assert upstream.requests[0].body == begin + middle + end
    assert values_after == (200, None)
    assert (first_value.outcome, second.outcome) == ("success", "success")
