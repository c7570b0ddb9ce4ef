"""JSON under another media type is refused on passthrough paths."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy, running_proxy
from tests.doubles import ScriptedUpstream, answer
from tests.for_each import for_each
from tests.passthrough.world import BEARER, RANKED, policies

MEANT = json.dumps({"model": "the-dearest", "api_base": "http://127.0.0.1:1"}).encode()
JSON_TYPES = ["application/x+json", "text/json", "Application/Vnd.Api+JSON; v=1", "text/json;a=b"]
OTHER_TYPES = ["text/plain", "application/octet-stream", "multipart/form-data; boundary=x", "x/y"]
NO_TYPES = ["application/json, text/plain", "a/json,x/y", "json", "a/b/c", "a /b", "/json,"]


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    upstream.answer_with(answer(RANKED))
    folder = tmp_path / "policies"
    async with running_proxy(folder, policies(upstream.url), body_bytes=1024) as proxy:
        yield proxy


async def status_of(proxy: Proxy, body: bytes | AsyncIterator[bytes], media_type: str) -> int:
    headers = {**BEARER, "content-type": media_type}
    async with (
        ClientSession() as session,
        session.post(f"{proxy.url}/v1/rerank", data=body, headers=headers) as response,
    ):
        assert "error" in await response.json() or response.status == 200
        return response.status


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@for_each("media_type", [*JSON_TYPES, *OTHER_TYPES])
async def test_json_in_disguise(media_type: str, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    assert await status_of(proxy, MEANT, media_type) == 415
    assert await status_of(proxy, pieces(b" \n", b"\t", MEANT), media_type) == 415
    assert await status_of(proxy, b" [" + MEANT + b"]", media_type) == 415
    for begin in (b"\xef\xbb\xbf", b" " * 200_000):
        assert await status_of(proxy, begin + MEANT, media_type) in {413, 415}
    assert await status_of(proxy, MEANT.decode().encode("utf-16"), media_type) == 415

    assert [request.body for request in upstream.requests if MEANT in request.body] == []
    for record in await proxy.sink.wait(6):
        assert record.outcome == "client_error"


@for_each("media_type", NO_TYPES)
async def test_bad_media_type(media_type: str, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    assert await status_of(proxy, MEANT, media_type) in {400, 415}
    assert upstream.requests == []


async def test_refuses_oversized_json(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    body = json.dumps({"model": "the-dearest", "more": "a" * 2048}).encode()

    assert await status_of(proxy, body, "application/json") == 413
    assert await status_of(proxy, pieces(body), "application/json") == 413
    assert upstream.requests == []


@pytest.mark.parametrize("name", ["Model", "MODEL", "mo_del", "mod-el", "\uff4dodel"])
async def test_other_model_spelling(name: str, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    """Servers in Go read a name in any case, and of two that are one to them the last."""
    body = json.dumps({"model": "rerank-1", name: "the-dearest"}).encode()

    assert await status_of(proxy, body, "application/json") == 400
    assert upstream.requests == []


@pytest.mark.parametrize("body", [b"plain {", b"--x\r\n{", b"\x00\x00\x00\x18ftyp{", b" "])
async def test_passes_other_body(body: bytes, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(RANKED))
    assert await status_of(proxy, body, "application/octet-stream") == 200
    assert [request.body for request in upstream.requests] == [body]
