"""Words planted in every input of the process are in none of its outputs: log, metrics, spans,
ledger, decision log, explanations, and what clients are told of errors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy import app
from proxy.settings import Address, LedgerAt, LogAs, Settings
from tests.conftest import KEY, world
from tests.doubles import (
    TRUST,
    Json,
    MemorySink,
    Script,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    cut_before_head,
    legacy,
    legacy_events,
    stream,
)
from tests.emit.collector import Collector
from tests.test_pipeline import ROUTES, Route

MARK = "cnry"
"""In every planted word. What a client names (a model, its request) is logged, and holds none."""
UPSTREAM_KEY = f"sk-{MARK}-upstream-0123456789"
STRANGE = {"openai": "Authorization", "scale": "x-api-key", "enkrypt": "apikey"}
POLICIES = """
policies:
  default:
    input:
      - {guard: keywords, words: [cnryforbidden], action: block}
      - {guard: keywords, name: seen, words: [cnryquestion], action: flag}
      - {guard: secrets, action: mask}
    output:
      - {guard: keywords, name: out, words: [cnryunsayable], action: block}
    limits: [{name: per-user, usd: 100 per day, unpriced: allow, per: user}]
    cache: {ttl: 1h, by_user: true}
"""


PASSES = (f"{MARK}type", f"{MARK}code")
"""What an upstream's error may tell the client, as its SDK decides by it, and nobody else."""


def without_words(told: bytes) -> bytes:
    """Return what a client was told without the words of the upstream that it may have."""
    for word in PASSES:
        told = told.replace(word.encode(), b"")
    return told


def asked(route: Route, *, streamed: bool, **more: Any) -> Json:
    """A body with a planted word in every text, and in a field that nobody knows."""
    text = f"{MARK}question my key is sk-{MARK}-abcdefghijklmnopqrstuvwx"
    said: Json = {"prompt": text}
    if route.chat:
        said = {
            "messages": [
                {"role": "system", "content": f"{MARK}system"},
                {"role": "user", "content": text},
            ]
        }
    return {**route.body(streamed=streamed), **said, "user": f"{MARK}user", **more}


def words(say: str, route: Route, *, streamed: bool, **how: Any) -> Script:
    """An answer of these words."""
    if streamed:
        events = chat_events if route.chat else legacy_events
        return stream(events(*say.split("|")), **how)
    said = say.replace("|", "")
    return answer(chat(said) if route.chat else legacy(said))


def odd_finish(route: Route) -> Json:
    said = chat("fine") if route.chat else legacy("fine")
    said["choices"][0]["finish_reason"] = f"{MARK} because"
    return said


Way = Callable[["World", Route, bool], Awaitable[None]]
WAYS: dict[str, Way] = {}


def way(do: Way) -> Way:
    WAYS[do.__name__] = do
    return do


@dataclass
class World:
    """A proxy with every output on, and what clients were told of errors."""

    url: str
    admin: str
    upstream: ScriptedUpstream
    sink: MemorySink
    told: list[bytes] = field(default_factory=list)
    calls: int = 0

    async def post(self, route: Route, body: Any, **headers: str) -> None:
        extra = {
            "cookie": f"session={MARK}cookie",
            "x-headrace-tags": f"feature={MARK}_tag,nobody={MARK}value",
            "x-forwarded-for": f"{MARK}address",
            "user-agent": f"{MARK}agent",
            **headers,
        }
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        self.calls += 1
        with contextlib.suppress(aiohttp.ClientError):
            async with (
                ClientSession() as client,
                client.post(
                    f"{self.url}{route.path}?q={MARK}query",
                    headers={**route.credential, **extra},
                    **sent,
                ) as response,
            ):
                said = await response.read()
                if response.status >= 400:
                    self.told.append(said)


@way
async def answered(world: World, route: Route, streamed: bool) -> None:
    world.upstream.answer_with(words(f"{MARK}an|swer", route, streamed=streamed))
    body = asked(route, streamed=streamed)
    await world.post(route, body)
    await world.post(route, body)  # from the cache


@way
async def finished_oddly(world: World, route: Route, streamed: bool) -> None:
    world.upstream.answer_with(answer(odd_finish(route)))
    await world.post(route, asked(route, streamed=False, temperature=0.1))


@way
async def blocked_before(world: World, route: Route, streamed: bool) -> None:
    said = f"{MARK}forbidden"
    more = {"messages": [{"role": "user", "content": said}]} if route.chat else {"prompt": said}
    await world.post(route, asked(route, streamed=streamed, **more))


@way
async def blocked_after(world: World, route: Route, streamed: bool) -> None:
    world.upstream.answer_with(words(f"{MARK}unsay|able {MARK}", route, streamed=streamed))
    await world.post(route, asked(route, streamed=streamed, temperature=0.2))


@way
async def cut(world: World, route: Route, streamed: bool) -> None:
    script = cut_before_head()
    if streamed:
        script = words(f"{MARK}an|swer|more", route, streamed=True, cut_after=2)
    world.upstream.answer_with(script)
    await world.post(route, asked(route, streamed=streamed, temperature=0.3))


@way
async def refused_by_upstream(world: World, route: Route, streamed: bool) -> None:
    for status in (400, 401, 429, 500):
        body = {"error": {"message": "no", "type": PASSES[0], "code": PASSES[1]}}
        world.upstream.answer_with(answer(body, status, f"x-secret: {MARK}header"))
        await world.post(route, asked(route, streamed=streamed, temperature=status / 1000))


@way
async def answered_with_garbage(world: World, route: Route, streamed: bool) -> None:
    world.upstream.answer_with(answer(f"{MARK} is no JSON".encode()))
    await world.post(route, asked(route, streamed=streamed, temperature=0.5))
    world.upstream.answer_with(answer(f"<{MARK}>".encode(), media_type="text/html"))
    await world.post(route, asked(route, streamed=streamed, temperature=0.6))
    world.upstream.answer_with(stream([f'{{"choices": {MARK}'.encode()]))
    await world.post(route, asked(route, streamed=streamed, temperature=0.7))


@way
async def wrong_requests(world: World, route: Route, streamed: bool) -> None:
    await world.post(route, asked(route, streamed=streamed, temperature=f"{MARK}hot"))
    await world.post(route, asked(route, streamed=streamed, stream=f"{MARK}yes"))
    await world.post(route, f'{{"prompt": "{MARK}'.encode())
    await world.post(route, f'["{MARK}"]'.encode())
    await world.post(route, b'{"model": "\xff' + MARK.encode())


@way
async def strangers(world: World, route: Route, streamed: bool) -> None:
    for name in ("Authorization", "x-api-key", "apikey", "x-portkey-api-key"):
        wrong = f"Bearer hr-{MARK}-wrong" if name == "Authorization" else f"hr-{MARK}-wrong"
        if name in route.credential:
            await world.post(route, asked(route, streamed=streamed), **{name: wrong})


@contextlib.asynccontextmanager
async def everything_on(folder: Path, upstream: ScriptedUpstream, collector: Collector) -> Any:
    policies = folder / "policies"
    policies.mkdir()
    (policies / "policies.yaml").write_text(world(upstream.url) + POLICIES)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    sink = MemorySink()
    settings = Settings(
        policies=policies,
        candidate=policies,
        listen=Address("127.0.0.1", 0),
        admin=Address("127.0.0.1", 0),
        environ={"UPSTREAM_KEY": UPSTREAM_KEY},
        otlp_endpoint=collector.url,
        ledger=LedgerAt("sqlite", folder / "ledger.db"),
        log=LogAs(level="debug", decisions=folder / "decisions.log"),
        drain_seconds=1.0,
    )
    try:
        async with app.running(settings, sink, log_fd=log, trust=TRUST) as running:
            yield World(f"http://{running.listen}", f"http://{running.admin}", upstream, sink)
    finally:
        os.close(log)


async def shown(world: World) -> Iterator[tuple[str, bytes]]:
    """Give what the admin port shows."""
    found = []
    openmetrics = {"accept": "application/openmetrics-text;version=1.0.0"}
    asks = [("/metrics", {}), ("/metrics", openmetrics), ("/candidate", {"accept": "text/json"})]
    ids = [record.head.request_id for record in world.sink.records if record.head]
    asks += [(f"/explain/{name}", {}) for name in ids]
    async with ClientSession(base_url=world.admin) as client:
        for path, headers in asks:
            async with client.get(path, headers=headers) as response:
                found.append((path, await response.read()))
    return iter(found)


@pytest.mark.parametrize("name", ROUTES)
async def test_what_goes_in_comes_out_nowhere_else(
    name: str, upstream: ScriptedUpstream, collector: Collector, tmp_path: Path
) -> None:
    route = ROUTES[name]
    async with everything_on(tmp_path, upstream, collector) as world:
        for do in WAYS.values():
            for streamed in (False, True) if route.streams else (False,):
                await do(world, route, streamed)
        await world.sink.wait(world.calls)
        outputs = list(await shown(world))
    outputs += [(f"error {n}", without_words(said)) for n, said in enumerate(world.told)]
    outputs += [(f"spans {n}", body) for n, body in enumerate(collector.bodies)]
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    outputs += [(path.name, path.read_bytes()) for path in files if path.name != "log"]
    for line in (tmp_path / "log").read_bytes().splitlines():  # type and code of an outage pass
        outputs.append(("log", without_words(line) if b'"upstream_unavailable"' in line else line))

    names = {path.name for path in files}
    assert {"log", "ledger.db", "decisions.log"} <= names
    assert collector.spans
    outcomes = {record.outcome for record in world.sink.records}
    assert outcomes >= {"success", "blocked", "client_error", "upstream_error"}
    for where, said in outputs:
        for word in (MARK, KEY):
            at = said.find(word.encode())
            assert at < 0, f"{where}: {said[max(0, at - 120) : at + 60]!r}"
    assert MARK.encode() in b"".join(asked.body for asked in upstream.requests)
