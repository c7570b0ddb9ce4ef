"""Failed connections: operators get the cause, clients get no host and no system text."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import sqlite3
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from proxy.settings import LedgerLocation
from tests.conftest import DIGEST, Proxy, running_proxy
from tests.doubles import (
    ReceivedRequest,
    Script,
    Wire,
    closes,
    event,
    hang,
    head,
    http_chunk,
    legacy_completion,
    legacy_events,
    respond,
    scripted_upstream,
)
from tests.servers import free_port
from tests.telemetry.collector import Collector, attributes_of
from tests.test_pipeline import BEARER
from tests.upstream.wire.test_dialing import black_hole

FIRST_VALUE = http_chunk(event(legacy_events(" Par")[0]))
STREAM_HEAD = head(200, "text/event-stream", "transfer-encoding: chunked")
WHOLE_HEAD = head(200, "application/json", "content-length: 500")
PATIENT = "{connect: 60s, first_byte: 60s, idle: 60s, total: 60s}"
HASTY_CONNECT = "{connect: 500ms, first_byte: 60s, idle: 60s, total: 60s}"
HASTY_POOL = "{connect: 300ms, first_byte: 2s, idle: 2s, total: 4s}"
HASTY = "{connect: 60s, first_byte: 500ms, idle: 500ms, total: 1500ms}"
NO_WORDS = re.compile(r"127\.|invalid:|localhost|errno|ssl|port |unreachable", re.IGNORECASE)
"""Host names and system texts."""
ROWS = """
SELECT upstream, attempts.error, upstream_error_cause, upstream_error_text
FROM attempts JOIN calls USING (run, seq) WHERE trace_id = ? ORDER BY number
"""


@dataclass
class Case:
    """A way to fail: ``url`` of the upstream, and what is recorded of the attempt.

    ``text`` begins the system's text; None if the system says nothing.
    """

    url: str
    cause: str
    whole: str
    streamed: str
    text: str | None = None

    @property
    def timeouts(self) -> str:
        if self.cause != "timeout":
            return PATIENT
        return HASTY_CONNECT if "connect" in self.whole else HASTY


def reset(*pieces: bytes) -> Script:
    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(*pieces)
        await asyncio.sleep(0)
        connection = wire.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.cut()

    return script


def by_way(act: Callable[..., Script]) -> Script:
    """Start a whole or streamed response as requested, then fail."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        is_streamed = request.json.get("stream") is True
        start = (STREAM_HEAD, FIRST_VALUE) if is_streamed else (WHOLE_HEAD, b'{"choices": [')
        await act(*start)(request, wire)

    return script


pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy. fixture")


@pytest.fixture(
    scope="module",
    params=[asyncio.DefaultEventLoopPolicy(), uvloop.EventLoopPolicy()],
    ids=["asyncio", "uvloop"],
)
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    """The event loops of tests and of production report failures differently."""
    return cast("asyncio.AbstractEventLoopPolicy", request.param)


UNAVAILABLE = "upstream_unavailable", "upstream_unavailable"
INVALID = "upstream_invalid_response", "upstream_invalid_response"
RESET = "[Errno 104] Connection reset by peer"
SCRIPTS: dict[str, tuple[Script, str, str, str, str | None]] = {
    "reset before the head": (reset(), "reset", *UNAVAILABLE, RESET),
    "closed before the head": (closes(), "closed", *UNAVAILABLE, None),
    "reset in the body": (by_way(reset), "reset", *INVALID, RESET),
    "closed in the body": (by_way(closes), "closed", *INVALID, None),
    "a stream that ends too early":
        (closes(STREAM_HEAD, FIRST_VALUE, b"0\r\n\r\n"), *("closed", *INVALID, None)),
    "silent before the head":
        (hang(), *("timeout", "upstream_total_timeout", "upstream_first_byte_timeout", None)),
    "silent in the body":
        (by_way(hang), *("timeout", "upstream_total_timeout", "upstream_idle_timeout", None)),
    "no HTTP": (closes(b"\x15\x03\x01\x00\x02\x02\x46\r\n\r\n"), "protocol", *INVALID, None),
}  # fmt: skip
"""What an upstream does, the cause, the codes of a whole and of a streamed call, and the text."""
WHOLE_IS_ANOTHER = {"a stream that ends too early"}
"""Cases that a whole call does not have."""


@asynccontextmanager
async def failing_cases() -> AsyncIterator[dict[str, Case]]:
    refused = free_port()
    cases = {
        "no such name": Case(
            "http://nobody.invalid:81", "dns", *UNAVAILABLE, "nobody.invalid: [Errno"
        ),
        "a refused port": Case(
            f"http://127.0.0.1:{refused}",
            "refused",
            *UNAVAILABLE,
            f"127.0.0.1 port {refused}: Connection refused",
        ),
        "no route": Case(
            "http://127.255.255.255:81",
            "unreachable",
            *UNAVAILABLE,
            "127.255.255.255 port 81: Network is unreachable",
        ),
    }
    async with AsyncExitStack() as running:
        full = running.enter_context(black_hole())
        codes = "upstream_connect_timeout", "upstream_connect_timeout"
        text = f"TCP connect with 127.0.0.1 port {full}"
        cases["a full queue"] = Case(f"http://127.0.0.1:{full}", "timeout", *codes, text)
        for name, (script, *expected) in SCRIPTS.items():
            upstream = await running.enter_async_context(scripted_upstream())
            upstream.answer_with(script)
            cases[name] = Case(upstream.url, *expected)  # type: ignore[arg-type]  # as listed
        yield cases


def working_case(url: str) -> Case:
    return Case(url, "", "", "")


def policies(cases: dict[str, Case], deployments: str = "", guards: str = "") -> str:
    ups = "\n".join(
        f"  {name}: {{dialect: openai, base_url: '{case.url}', breaker: off, "
        f"timeouts: {case.timeouts}}}"
        for name, case in cases.items()
    )
    deps = deployments or "\n".join(
        f"  {name}: {{targets: [{{upstream: {name}, model: m}}]}}" for name in cases
    )
    names = ", ".join(re.findall(r"^  (\S+):", deps, re.MULTILINE))
    return f"""
upstreams:
{ups}
keys: {{support: {{sha256: {DIGEST}, deployments: [{names}]}}}}
deployments:
{deps}
{guards}
"""


@dataclass
class CallTraces:
    body: str
    headers: dict[str, str]
    line: dict[str, Any]
    spans: list[dict[str, Any]]
    explanation: str
    rows: list[tuple[Any, ...]]


async def send(proxy: Proxy, deployment: str, *, streamed: bool) -> tuple[str, dict[str, str], str]:
    body = {"model": "m", "prompt": "Hi", "stream": streamed}
    headers = {**BEARER, "x-headrace-deployment": deployment}
    response = await proxy.send("/v1/completions", body, headers)
    received = {name.lower(): value for name, value in response.headers.items()}
    prompt = f"{proxy.admin}/explain/{received['x-request-id']}"
    async with proxy.client.get(prompt) as explained:
        return response.raw.decode(), received, await explained.text()


async def calls(
    folder: Path, collector: Collector, policy: str, ways: list[tuple[str, bool]]
) -> tuple[list[CallTraces], str]:
    log, ledger = folder / "log", folder / "ledger.db"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    try:
        async with running_proxy(
            folder / "p",
            policy,
            log_fd=descriptor,
            ledger=LedgerLocation("sqlite", ledger),
            otlp_endpoint=collector.url,
        ) as proxy:
            events = [await send(proxy, name, streamed=streamed) for name, streamed in ways]
            metrics = await proxy.metrics()
    finally:
        os.close(descriptor)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines = [line for line in lines if line["event"] == "call"]
    results = []
    with closing(sqlite3.connect(ledger)) as file:
        for (body, headers, explanation), line in zip(events, lines, strict=True):
            spans = [
                attributes_of(span)
                for span in collector.spans
                if span.name == "POST" and span.trace_id.hex() == line["trace_id"]
            ]
            rows = file.execute(ROWS, [line["trace_id"]]).fetchall()
            results.append(CallTraces(body, headers, line, spans, explanation, rows))
    return results, metrics


async def test_failures_are_recorded_without_hosts(tmp_path: Path, collector: Collector) -> None:
    async with failing_cases() as cases:
        names = {f"u{number}": name for number, name in enumerate(cases)}
        policy = policies({short: cases[name] for short, name in names.items()})
        ways = [
            (short, streamed)
            for short, name in names.items()
            for streamed in (False, True)
            if streamed or name not in WHOLE_IS_ANOTHER
        ]
        tolds, metrics = await calls(tmp_path, collector, policy, ways)

    for (short, streamed), call in zip(ways, tolds, strict=True):
        case, name = cases[names[short]], f"{names[short]}, {streamed=}"
        code = case.streamed if streamed else case.whole
        line, [span] = call.line, call.spans
        text = line["upstream_error_text"]
        assert (line["error"], line["upstream_error_cause"]) == (code, case.cause), name
        assert (text or "").startswith(case.text or ""), (name, text)
        assert (text is None) == (case.text is None), (name, text)
        assert call.rows == [(short, code, case.cause, text)], name
        assert (span["error.type"], span["headrace.upstream.error_cause"]) == (code, case.cause)
        assert span.get("headrace.upstream.error_text") == text, name
        assert f"{short}/m failed with {code} ({case.cause})" in call.explanation, name
        assert text is None or json.dumps(text)[1:-1] in call.explanation, name
        labels = f'cause="{case.cause}",model="m",result="{code}",upstream="{short}"'
        assert f"headrace_upstream_attempts_total{{{labels}}}" in metrics, name
        read = call.body + str({k: v for k, v in call.headers.items() if k != "x-request-id"})
        assert code in read, name
        assert not NO_WORDS.search(read.replace("invalid_request", "")), (name, read)


async def test_error_of_stale_connection_says_how_it_ended(
    tmp_path: Path, collector: Collector
) -> None:
    async with scripted_upstream() as upstream:
        for end in (closes(), reset()):
            upstream.then(respond(legacy_completion()), end, respond(legacy_completion()))
        policy = policies({"u": working_case(upstream.url)})
        tolds, _ = await calls(tmp_path, collector, policy, [("u", False)] * 4)

    ends = [call.rows for call in tolds]
    assert ends[0] == ends[2] == [("u", None, None, None)]
    assert ends[1] == [("u", "upstream_stale", "closed", None), ("u", None, None, None)]
    assert ends[3][0][:3] == ("u", "upstream_stale", "reset")
    assert [call.line["upstream_error_cause"] for call in tolds] == [None] * 4


@pytest.mark.parametrize("hedge", ["", "hedge: {after: 10ms}"], ids=["fallback", "hedge"])
async def test_failed_attempt_of_a_served_call_keeps_its_cause(
    hedge: str, tmp_path: Path, collector: Collector
) -> None:
    refused = f"http://127.0.0.1:{free_port()}"
    async with scripted_upstream() as upstream:
        policy = policies(
            {"away": working_case(refused), "there": working_case(upstream.url)},
            "  both: {targets: [{upstream: away, model: m}], "
            f"fallback: [{{upstream: there, model: m}}], {hedge}}}",
        )
        [call], metrics = await calls(tmp_path, collector, policy, [("both", False)])

    assert (call.line["outcome"], call.line["upstream_error_cause"]) == ("success", None)
    causes = [row[:3] for row in call.rows]
    assert causes == [("away", "upstream_unavailable", "refused"), ("there", None, None)]
    assert "away/m failed with upstream_unavailable (refused)" in call.explanation
    assert 'cause="none",model="m",result="2xx",upstream="there"} 1.0' in metrics


async def test_full_pool_is_no_fault_of_the_upstream(tmp_path: Path) -> None:
    async with scripted_upstream() as upstream:
        upstream.answer_with(hang())
        policy = policies({"u": Case(upstream.url, "timeout", "", "")}).replace(HASTY, HASTY_POOL)
        async with running_proxy(tmp_path / "p", policy, upstream_connections=1) as proxy:
            await asyncio.gather(*(send(proxy, "u", streamed=False) for _ in range(2)))
            records = await proxy.sink.wait(2)

    assert {record.error.cause for record in records} == {"timeout", "pool"}


@pytest.mark.parametrize(
    ("script", "cause"), [(reset(), "reset"), (closes(), "closed"), (None, "refused")]
)
async def test_error_of_failed_guard_service_has_a_cause(
    script: Script | None, cause: str, tmp_path: Path, collector: Collector
) -> None:
    async with scripted_upstream() as upstream, scripted_upstream() as service:
        url = f"http://127.0.0.1:{free_port()}"
        if script is not None:
            service.answer_with(script)
            url = service.url
        policy = policies(
            {"u": working_case(upstream.url)},
            "  u: {targets: [{upstream: u, model: m}], policy: p}",
            f"policies: {{p: {{input: [{{guard: presidio, url: '{url}', entities: [PERSON]}}]}}}}",
        )
        [call], _ = await calls(tmp_path, collector, policy, [("u", False)])

    assert [guard["error"] for guard in call.line["guards"]] == [cause]
    assert "guard_unavailable" in call.body
    assert not NO_WORDS.search(call.body)
    assert upstream.requests == []
