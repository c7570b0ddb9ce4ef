"""Shared fixtures: no connections to other machines, and a proxy with a scripted upstream."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientSession
from hypothesis import settings
from multidict import CIMultiDict
from prometheus_client.parser import text_string_to_metric_families
from pytest_aiohttp.plugin import AiohttpRawServer

from proxy import app
from proxy.settings import Address, Settings
from tests.doubles import PATIENCE_S, TRUST, ScriptedUpstream, scripted_upstream
from tests.fakes import MemorySink
from tests.parts import RunningTest
from tests.telemetry.collector import Collector

KEY = "hr-test-key"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
LARGE_BODY = 2**20  # bytes; aiohttp warns above 1 MiB unless the body is a file
LOOPBACK = ("127.", "::1", "localhost")


def _refuse_other_hosts(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = str(arguments[1][0])
        if not host.startswith(LOOPBACK):
            raise ConnectionRefusedError(f"tests stay on this machine: {host}")


def _forget_http_proxies() -> None:
    """Remove variables such as ``HTTP_PROXY``, so that clients connect directly."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            del os.environ[name]


def _restore_sigint() -> None:
    """Restore SIGINT, which shells ignore for background commands. Processes that
    tests start would inherit it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_forget_http_proxies()
_restore_sigint()
sys.addaudithook(_refuse_other_hosts)
settings.register_profile("busy machines", deadline=None)
settings.load_profile("busy machines")


def pytest_configure(config: pytest.Config) -> None:
    """Mark tests by the parts that they need, and enforce the markers."""
    running = RunningTest()
    config.pluginmanager.register(running)
    if config.option.markexpr:  # deselected parts must not be used
        sys.addaudithook(running.check_program)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the expected files anew")
    parser.addoption(
        "--examples", default=60, type=int, help="number of random requests or sequences per test"
    )


def pytest_collection_finish() -> None:
    """Collect garbage as `headrace serve` does, without traversing the objects of pytest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@dataclass(frozen=True)
class Reply:
    """A whole response, as a client reads it."""

    status: int
    headers: Mapping[str, str]
    raw: bytes
    is_cut: bool = False
    """True if the connection was closed before the end of the body."""

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def error(self) -> Any:
        """The error object in the form of the dialect."""
        return self.json["error"]


@dataclass
class Proxy:
    """A running proxy, a client of it and the records of its calls."""

    url: str
    admin: str
    policies: Path
    sink: MemorySink
    client: ClientSession
    key: str = KEY
    log: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[Any]:
        return self.sink.records

    def start_case(self) -> None:
        self.sink.forget()

    async def send(
        self,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
    ) -> Reply:
        """Send JSON or bytes. Without ``headers`` the call has the default key."""
        data, headers = body, CIMultiDict(headers or {"authorization": f"Bearer {self.key}"})
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
            headers.setdefault("content-type", "application/json")
        if data is not None and len(data) > LARGE_BODY:
            data = BytesIO(data)
        async with self.client.request(method, path, headers=headers, data=data) as response:
            pieces, is_cut = list[bytes](), False
            try:
                async for piece in response.content.iter_any():
                    pieces.append(piece)
            except ClientPayloadError:
                is_cut = True
        return Reply(response.status, response.headers, b"".join(pieces), is_cut)

    async def complete(self, headers: Mapping[str, str] | None = None, **fields: Any) -> Reply:
        """Send a legacy completion of one prompt."""
        body = {"model": "gpt-4o-mini", "prompt": "Hi", **fields}
        return await self.send("/v1/completions", body, headers)

    async def chat(self, headers: Mapping[str, str] | None = None, **fields: Any) -> Reply:
        """Send a chat of one message."""
        messages = [{"role": "user", "content": "Hi"}]
        body = {"model": "search-answers", "messages": messages, **fields}
        return await self.send("/v1/chat/completions", body, headers)

    async def metrics(self) -> str:
        """Scrape the admin port."""
        return await self.read("/metrics")

    async def read(self, path: str) -> str:
        """Return a page of the admin port."""
        async with self.client.get(self.admin + path) as response:
            return await response.text()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a raw connection."""
        host, port = self.url.removeprefix("http://").split(":")
        return await asyncio.open_connection(host, int(port))

    async def send_bytes(self, *parts: bytes, pause_s: float = 0.0) -> bytes:
        """Send bytes on a raw connection, with a pause after each part.

        Return all bytes that the proxy sends until it closes the connection.
        """
        reader, writer = await self.connect()
        try:
            async with asyncio.timeout(PATIENCE_S):
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(pause_s)
                return await reader.read()
        finally:
            writer.close()


def metric_total(metrics: str, name: str, **labels: str) -> Decimal:
    """Return the sum of the series of a metric with these labels."""
    samples = [s for family in text_string_to_metric_families(metrics) for s in family.samples]
    series = [s for s in samples if s.name == name and labels.items() <= s.labels.items()]
    return sum((Decimal(str(sample.value)) for sample in series), Decimal(0))


def policies_for(upstream: str, *, hasty: bool = False) -> str:
    """The small world of all tests: an upstream of each dialect, two teams, two deployments.

    It waits for its upstream as long as a busy machine may take. A ``hasty`` one does not: for
    tests in which an upstream is meant to be too late.
    """
    stranger = hashlib.sha256(b"hr-search-key").hexdigest()
    other_values = ("portkey", "fireworks", "scale", "multimodel", "enkrypt", "anthropic")
    ups = "\n".join(
        f"  {d}: {{dialect: {d}, base_url: '{upstream}'{_key()}}}" for d in other_values
    )
    deps = "\n".join(
        f"  via-{d}: {{targets: [{{upstream: {d}, model: {d}-model{_price()}}}]}}"
        for d in other_values
    )
    reach = ", ".join(f"via-{d}" for d in other_values)
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{upstream}/v1'{_key()}, timeouts: {_timeouts(hasty)}}}
{ups}
tags:
  team: [support, search]
  env: [prod, staging]
  feature: {{pattern: '[a-z-]+', caller: true}}
  beta: {{flag: true, caller: true}}
keys:
  support-widget:
    sha256: {DIGEST}
    deployments: [support-chat, search-answers, legacy-only, responses-only,
      resilient, compare, {reach}]
    tags: {{team: support}}
    may: [refresh]
  search-box: {{sha256: {stranger}, deployments: [search-answers]}}
deployments:
  support-chat:
    tags: {{team: search, env: prod}}
    targets: [{{upstream: openai, model: gpt-4o-mini{_price()}}}]
  search-answers:
    targets: [{{upstream: openai, model: smol, endpoint: chat}}]
  legacy-only:
    targets: [{{upstream: openai, model: smol-legacy, endpoint: completions}}]
  responses-only:
    targets: [{{upstream: openai, model: smol-responses, endpoint: responses}}]
  resilient:
    targets: [{{upstream: openai, model: primary{_price()}}}]
    fallback: [{{upstream: scale, model: spare{_price()}}}]
  compare:
    targets:
      - {{upstream: openai, model: first{_price()}}}
      - {{upstream: openai, model: second{_price()}}}
      - {{upstream: openai, model: third, endpoint: chat}}
{deps}
"""


def _key() -> str:
    return ", api_key: '${UPSTREAM_KEY}'"


def _price() -> str:
    return ", price: {input: 0.15, output: 0.6, cached_input: 0.075}"


def _timeouts(hasty: bool) -> str:
    if hasty:
        return "{connect: 1s, first_byte: 1500ms, idle: 1500ms, total: 3s}"
    return "{connect: 60s, first_byte: 60s, idle: 60s, total: 60s}"


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream() as running:
        yield running


@asynccontextmanager
async def running_proxy(folder: Path, policies: str, **settings: Any) -> AsyncIterator[Proxy]:
    """Run the proxy with ``settings``; ``log_fd`` among them is where its log goes, and ``trust``
    verifies certificates of upstreams."""
    folder.mkdir(exist_ok=True)
    (folder / "policies.yaml").write_text(policies)
    sink, log_fd = MemorySink(), settings.pop("log_fd", None)
    trust = settings.pop("trust", TRUST)
    chosen = Settings(
        policies=folder,
        **{
            "listen": Address("127.0.0.1", 0),
            "admin": Address("127.0.0.1", 0),
            "drain_seconds": 1.0,
            "drain_grace_seconds": 0.0,
            "environ": {"UPSTREAM_KEY": "sk-upstream-secret"},
            **settings,
        },
    )
    unread = os.open(os.devnull, os.O_WRONLY)  # an unread pipe would fill and block
    try:
        async with app.run_proxy(chosen, sink, log_fd=log_fd or unread, trust=trust) as running:
            url, admin = f"http://{running.listen}", f"http://{running.admin}"
            async with ClientSession(base_url=url) as client:
                yield Proxy(url, admin, folder, sink, client)
    finally:
        os.close(unread)


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url)) as running:
        yield running


@pytest.fixture
async def hasty_proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(
        tmp_path / "policies", policies_for(upstream.url, hasty=True)
    ) as running:
        yield running


@pytest.fixture
async def collector(aiohttp_raw_server: AiohttpRawServer) -> Collector:
    collector = Collector()
    server = await aiohttp_raw_server(collector.handle)
    collector.url = str(server.make_url("")).rstrip("/")
    return collector


@pytest.fixture
def client(proxy: Proxy) -> ClientSession:
    return proxy.client
