"""Passthrough bodies of every kind under guards and limits: one record and one bill each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy
from tests.doubles import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    hang,
    head,
    http_chunk,
    respond,
)
from tests.for_each import for_each
from tests.passthrough.listed_policies import BEARER, RANKED, RERANK, running
from tests.servers import eventually

EMAIL = "jane@example.com"
WORD = "{guard: keywords, words: [hippo]}"
PII = "{guard: pii, entities: [email], action: mask}"
FLAG = "{guard: keywords, words: [hippo], action: flag}"
SHADOW = "{guard: keywords, words: [hippo], mode: shadow}"
FORM = "multipart/form-data; boundary=x"
EVENTS = b'event: done\ndata: {"text": "hippo", "usage": {"total_tokens": 5}}\n\n'

JSON_BODY: dict[str, Any] = {"json": {**RERANK, "query": f"hippo {EMAIL}"}}
PART = b'content-disposition: form-data; name="file"; filename="a"\r\n\r\nhippo'
MODEL_PART = b'content-disposition: form-data; name="model"\r\n\r\nrerank-1'
FORM_BODY: dict[str, Any] = {"data": b"--x\r\n%b\r\n--x\r\n%b\r\n--x--\r\n" % (MODEL_PART, PART)}


Start = Callable[[str], Awaitable[Proxy]]


@pytest.fixture
async def start(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Start]:
    """Start a proxy with this policy. It runs until the test ends."""
    async with AsyncExitStack() as proxies:

        async def start_proxy(policy: str) -> Proxy:
            policy = f"{{match: all, {policy}}}"
            return await proxies.enter_async_context(running(tmp_path, upstream.url, policy=policy))

        yield start_proxy


async def send_request(
    client: ClientSession, path: str = "/v1/rerank", method: str = "POST", **body: Any
) -> tuple[int, bytes, dict[str, str]]:
    headers = {**BEARER, **({"content-type": FORM} if "data" in body else {})}
    async with client.request(method, path, headers=headers, **body) as response:
        output = {name.lower(): value for name, value in response.headers.items()}
        return response.status, await response.read(), output


@pytest.mark.parametrize("opaque", ["refuse", "allow"])
@for_each(
    ("guards", "body", "expected"),
    [
        (f"input: [{WORD}]", JSON_BODY, (400, 400)),
        *((f"input: [{guard}]", JSON_BODY, (200, 200)) for guard in (PII, FLAG, SHADOW)),
        *((f"input: [{guard}]", FORM_BODY, (400, 200)) for guard in (WORD, PII)),
        *((f"input: [{guard}]", FORM_BODY, (200, 200)) for guard in (FLAG, SHADOW)),
        *((f"output: [{WORD}]", body, (200, 200)) for body in (JSON_BODY, FORM_BODY)),
    ],
)
async def test_request_is_guarded_or_follows_opaque(
    guards: str,
    body: dict[str, Any],
    expected: tuple[int, int],
    opaque: str,
    start: Start,
    upstream: ScriptedUpstream,
) -> None:
    upstream.then(respond(RANKED))
    proxy = await start(f"{guards}, opaque: {opaque}")
    status, raw, _ = await send_request(proxy.client, **body)
    [record] = await proxy.sink.wait()

    assert status == expected[opaque == "allow"], raw
    assert len(upstream.requests) == (status == 200)
    if status == 200 and "json" in body:
        assert (EMAIL not in upstream.requests[0].json["query"]) == ("mask" in guards)
        assert json.loads(raw) == RANKED
    if status == 200 and "data" in body:
        assert upstream.requests[0].body == body["data"]
        assert upstream.requests[0].headers["content-type"] == FORM
    stages = [(stage, result.verdict) for stage, result in record.list_guard_results()]
    if "input" in guards and "data" in body and status == 200:
        assert stages == [("input", "not_applicable")]
    assert record.outcome == ("success" if status == 200 else "blocked")


def binary(data: bytes, media_type: str = "audio/mpeg") -> Script:
    return respond(data, media_type=media_type)


TRANSCRIPT = {"text": f"the hippo at {EMAIL}", "usage": {"input_tokens": 4, "output_tokens": 2}}


@pytest.mark.parametrize("guard", [WORD, PII, FLAG])
@pytest.mark.parametrize(
    ("status", "media_type"), [(204, "application/json"), (200, "text/plain"), (200, "a/b+json")]
)
async def test_response_without_body_is_not_opaque(
    status: int, media_type: str, guard: str, start: Start, upstream: ScriptedUpstream
) -> None:
    upstream.then(respond(b"", status, media_type=media_type))
    proxy = await start(f"output: [{guard}]")
    response, raw, output = await send_request(proxy.client, "/v1/files/file-1", "DELETE")
    [record] = await proxy.sink.wait()

    assert (response, raw, record.outcome) == (status, b"", "success")
    assert output.get("content-length") == (None if status == 204 else "0")


@pytest.mark.parametrize("opaque", ["refuse", "allow"])
@for_each(
    ("guards", "script", "expected"),
    [
        (f"output: [{WORD}]", respond(TRANSCRIPT), (400, 400)),
        (f"output: [{PII}]", respond(TRANSCRIPT), (200, 200)),
        (f"output: [{PII}]", respond([EMAIL]), (200, 200)),
        (f"output: [{FLAG}]", respond(TRANSCRIPT), (200, 200)),
        *((f"output: [{guard}]", binary(b"\xffhippo"), (400, 200)) for guard in (WORD, PII)),
        *((f"output: [{guard}]", binary(b"\xffhippo"), (200, 200)) for guard in (FLAG, SHADOW)),
        (f"output: [{WORD}]", binary(EVENTS, "text/event-stream"), (400, 200)),
        (f"input: [{PII}]", binary(b"\xffhippo"), (200, 200)),
    ],
)
async def test_response_is_guarded_or_follows_opaque(
    guards: str,
    script: Script,
    expected: tuple[int, int],
    opaque: str,
    start: Start,
    upstream: ScriptedUpstream,
) -> None:
    upstream.then(script)
    proxy = await start(f"{guards}, opaque: {opaque}")
    status, raw, headers = await send_request(proxy.client, json=RERANK)
    [record] = await proxy.sink.wait()

    assert status == expected[opaque == "allow"], raw
    if status != 200:
        assert (record.outcome, headers["x-headrace-error"]) == ("blocked", "guardrail_blocked")
        assert b"hippo" not in raw
    elif headers["content-type"] == "application/json":
        assert (EMAIL.encode() in raw) == ("mask" not in guards)
    else:
        assert raw in (b"\xffhippo", EVENTS)
        verdicts = [row.verdict for stage, row in record.list_guard_results() if stage == "output"]
        assert verdicts == ["not_applicable"] * ("output" in guards)


async def test_unsafe_guard_retry_is_blocked(start: Start, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(TRANSCRIPT))
    guard = "{guard: keywords, words: [hippo], action: retry}"
    proxy = await start(f"output: [{guard}]")
    status, raw, _ = await send_request(proxy.client, json=RERANK)

    assert (status, b"hippo" in raw) == (400, False)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "script", [respond(TRANSCRIPT), binary(b"\xffhippo")], ids=["json", "bytes"]
)
async def test_text_is_captured(script: Script, start: Start, upstream: ScriptedUpstream) -> None:
    upstream.then(script)
    proxy = await start(f"output: [{PII}], opaque: allow, capture: {{share: 100%}}")
    assert (await send_request(proxy.client, json=RERANK))[0] == 200
    [record] = await proxy.sink.wait()

    output = "" if record.captured is None else str(record.captured())
    assert EMAIL not in output


async def test_explanation_has_no_payload(start: Start, upstream: ScriptedUpstream) -> None:
    upstream.then(respond({"id": "file-secret"}))
    proxy = await start(f"input: [{FLAG}]")
    _, _, headers = await send_request(proxy.client, "/v1/files/file-secret", "GET")
    async with proxy.client.get(f"{proxy.admin}/explain/{headers['x-request-id']}") as response:
        explained = await response.text()

    assert "passthrough: GET /v1/files/{id}" in explained
    assert "file-secret" not in explained


async def test_upstream_errors_are_guarded(start: Start, upstream: ScriptedUpstream) -> None:
    upstream.then(respond({"error": {"message": f"no {EMAIL}"}}, 400))
    proxy = await start(f"output: [{PII}]")
    status, raw, _ = await send_request(proxy.client, json=RERANK)

    assert (status, EMAIL.encode() in raw) == (400, False)


@pytest.mark.parametrize(
    ("limit", "codes"),
    [
        ("{name: l, requests: 2 per hour}", [200, 200, 429]),
        ("{name: l, usd: 0.00003 per day}", [200, 200, 429]),
        ("{name: l, tokens: 14 per hour}", [200, 200, 429]),
        ("{name: l, requests: 2 per hour, mode: shadow}", [200, 200, 200]),
    ],
)
async def test_limits_count_passthrough_calls(
    limit: str, codes: list[int], start: Start, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(RANKED))  # 7 tokens at 3 USD per million: 21 micro-USD
    proxy = await start(f"limits: [{limit}]")
    matches = [(await send_request(proxy.client, json={"query": "q"}))[0] for _ in codes]
    records = await proxy.sink.wait(len(codes))

    assert matches == codes
    assert len(upstream.requests) == codes.count(200)
    costs = [record.billing.cost for record in records]
    assert costs == [21_000 if code == 200 else 0 for code in codes]


async def test_spent_budget_blocks_unpriced_calls(start: Start, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(RANKED))
    proxy = await start("limits: [{name: l, usd: 0.000021 per day}]")
    assert (await send_request(proxy.client, json={"query": "q"}))[0] == 200
    assert (await send_request(proxy.client, **FORM_BODY))[0] == 429
    assert len(upstream.requests) == 1


async def test_lease_is_held_to_the_last_byte(start: Start, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()

    async def slowly(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "audio/mpeg", "transfer-encoding: chunked"), http_chunk(b"a"))
        await gate.wait()
        await wire.send(http_chunk(b"b"), b"0\r\n\r\n")

    upstream.answer_with(slowly)
    proxy = await start("limits: [{name: l, concurrency: 1}]")
    async with proxy.client.post("/v1/rerank", headers=BEARER, json=RERANK) as response:
        assert await response.content.readany() == b"a"
        assert (await send_request(proxy.client, json=RERANK))[0] == 429
        gate.set()
        assert await response.read() == b"b"
    assert (await send_request(proxy.client, json=RERANK))[0] == 200


@pytest.mark.parametrize("body", [JSON_BODY, FORM_BODY], ids=["json", "form"])
async def test_disconnect_releases_everything(
    body: dict[str, Any], start: Start, upstream: ScriptedUpstream
) -> None:
    upstream.then(hang())
    proxy = await start("limits: [{name: l, concurrency: 1}]")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await send_request(proxy.client, **body)
    [record] = await proxy.sink.wait()
    await eventually(upstream.requests[0].closed.is_set)
    upstream.then(respond({}))
    assert (await send_request(proxy.client, json=RERANK))[0] == 200

    assert record.outcome == "client_abort"
    assert record.attempts[0].error == "cancelled"


async def test_unread_upload_fails_over(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.then(respond({}, 503), respond({}))
    async with running(tmp_path, upstream.url, retry="{times: 3, wait: 1ms}") as proxy:
        async with ClientSession(base_url=proxy.url) as client:
            assert (await send_request(client, **FORM_BODY))[0] == 503
            assert (await send_request(client, json=RERANK))[0] == 200
        first_value, second = await proxy.sink.wait(2)
    assert (len(first_value.attempts), len(second.attempts)) == (1, 1)
