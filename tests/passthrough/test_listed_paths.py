"""Listed paths and Azure's paths take the model of their target, and no JSON in disguise."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.dialects import ENDPOINTS_WITHOUT_BODY, ROUTES
from tests.conftest import KEY, Proxy, running_proxy
from tests.doubles import Json, ScriptedUpstream, legacy_completion, respond
from tests.for_each import for_each
from tests.passthrough.listed_policies import BEARER, RANKED, digest, policies

ALIAS, MODEL, NAME = "old-files", "file-keeper", "support-files"
IDS = {"deployment": NAME, "id": "conv_1", "item": "msg_1", "model": MODEL}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
QUESTIONS: list[dict[str, Any]] = [HELLO, {"input": "Hello"}, {"prompt": "Hello"}, {}]
NAMED: list[dict[str, Any]] = [*({"model": name} for name in (NAME, ALIAS, MODEL)), {}]
BODIES = [{**question, **named} for question in QUESTIONS for named in NAMED]
SERVED = {"chat", "completions", "conversations", "embeddings", "responses"}


def policy(upstream: str, *, only: bool) -> str:
    return f"""
upstreams: {{openai: {{dialect: openai, base_url: '{upstream}/v1'}}}}
keys: {{support-widget: {{sha256: {digest(KEY)}, deployments: [{NAME}]}}}}
deployments:
  {NAME}:
    also_known_as: [{ALIAS}]
    targets: [{{upstream: openai, model: {MODEL}, price: {{input: 0, output: 0}}}}]
    only_passthrough: {str(only).lower()}
    passthrough: [/v1/files]
"""


async def call_all_routes(folder: Path, policies: str, named: str = "") -> tuple[list[Any], Any]:
    """Return the records and responses of requests on all routes with all bodies."""
    headers = {**BEARER, "apikey": KEY, "x-api-key": KEY}
    headers |= {"x-headrace-deployment": named} if named else {}
    answers = []
    async with (
        running_proxy(folder, policies, id_secrets=("a secret of replicas",)) as proxy,
        ClientSession(base_url=proxy.url, headers=headers) as client,
    ):
        for (method, route), (_, endpoint) in ROUTES.items():
            has_body = method == "POST" and endpoint not in ENDPOINTS_WITHOUT_BODY
            for body in BODIES if has_body else [None]:
                async with client.request(method, route.format(**IDS), json=body) as response:
                    answers.append((endpoint, response.status, await response.text()))
        return await proxy.sink.wait(len(answers)), answers


@pytest.mark.parametrize("name", ["", NAME, ALIAS])
async def test_passthrough_only_deployment_serves_no_other_call(
    name: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    records, answers = await call_all_routes(tmp_path / "p", policy(upstream.url, only=True), name)

    assert upstream.requests == []
    assert not any(record.attempts or record.billing.cost for record in records)
    for endpoint, status, text in answers:
        assert (status == 200 and endpoint == "models") or 400 <= status < 500
        assert status != 200 or (MODEL not in text and NAME not in text)


async def test_unlisted_target_serves_routes(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(respond({"id": "x"}))

    records, _ = await call_all_routes(tmp_path / "p", policy(upstream.url, only=False))

    assert {record.head.endpoint for record in records if record.attempts} >= SERVED


TARGETS = {
    "priced": "{upstream: openai, model: image-1, price: {input: 5, output: 40}}",
    "unpriced": "{upstream: openai, model: image-2}",
    "free": "{upstream: openai, model: files, price: {input: 0, output: 0}}",
    "in-the-url": "{upstream: azure, model: image-3}",
}
EDITS, CANCEL = "/v1/images/edits", "/v1/batches/{id}/cancel"
FORM_BODIES: dict[str, dict[str, Any]] = {
    "a form": {"name": "prompt", "filename": None},
    "a form with a file": {"name": "image", "filename": "a.png"},
    "a form with a list of models": {"name": "model[]", "filename": None},
    "JSON": {},
}
REQUIRED = {"priced", "unpriced"}
"""Targets at which the upstream would choose a model that the policy does not name."""


def target_policies(url: str) -> str:
    paths = f"passthrough: [{EDITS}, '{CANCEL}']"
    listed = "\n".join(f"  {name}: {{targets: [{row}], {paths}}}" for name, row in TARGETS.items())
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1'}}
  azure: {{dialect: azure, base_url: '{url}', query: {{api-version: "1"}}}}
keys:
  app: {{sha256: {digest(KEY)}, deployments: [priced, unpriced, free, in-the-url]}}
deployments:
{listed}
"""


@pytest.fixture
async def client(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[ClientSession]:
    upstream.then(respond({}))
    async with (
        running_proxy(tmp_path / "policies", target_policies(upstream.url)) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER) as session,
    ):
        yield session


async def post(client: ClientSession, target: str, path: str, body: str) -> tuple[int, Any]:
    if body == "JSON":
        sent_value: Any = {"json": {"prompt": "A cat."}}
    else:
        form = aiohttp.FormData(default_to_multipart=True, quote_fields=False)
        model = TARGETS[target].partition("model: ")[2].split(",")[0].strip("}")
        form.add_field(value=model, **FORM_BODIES[body])
        sent_value = {"data": form}
    headers = {"x-headrace-deployment": target}
    async with client.post(path, headers=headers, **sent_value) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("body", FORM_BODIES)
@pytest.mark.parametrize("path", [EDITS, CANCEL.format(id="batch_1")])
@pytest.mark.parametrize("target", TARGETS)
async def test_body_names_the_model_of_the_target(
    target: str, path: str, body: str, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    requires_model = target in REQUIRED and path == EDITS

    status, event = await post(client, target, path, body)

    if body != "JSON" and requires_model:
        assert (status, event["error"]["param"], upstream.requests) == (400, "model", [])
    else:
        [request] = upstream.requests
        assert status == 200
        assert body != "JSON" or ("model" in request.json) == requires_model


HIDDEN_JSON = json.dumps({"model": "the-dearest", "api_base": "http://127.0.0.1:1"}).encode()
JSON_TYPES = ["application/x+json", "text/json", "Application/Vnd.Api+JSON; v=1", "text/json;a=b"]
OTHER_TYPES = ["text/plain", "application/octet-stream", "multipart/form-data; boundary=x", "x/y"]
NO_TYPES = ["application/json, text/plain", "a/json,x/y", "json", "a/b/c", "a /b", "/json,"]


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    upstream.answer_with(respond(RANKED))
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
async def test_json_of_another_media_type_is_refused(
    media_type: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    utf_16 = HIDDEN_JSON.decode().encode("utf-16")
    in_pieces = pieces(b" \n", b"\t", HIDDEN_JSON)
    for body in (HIDDEN_JSON, in_pieces, b" [" + HIDDEN_JSON + b"]", utf_16):
        assert await status_of(proxy, body, media_type) == 415
    for begin in (b"\xef\xbb\xbf", b" " * 200_000):
        assert await status_of(proxy, begin + HIDDEN_JSON, media_type) in {413, 415}

    assert [request.body for request in upstream.requests if HIDDEN_JSON in request.body] == []
    for record in await proxy.sink.wait(6):
        assert record.outcome == "client_error"


@for_each("media_type", NO_TYPES)
async def test_invalid_media_type_is_refused(
    media_type: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    assert await status_of(proxy, HIDDEN_JSON, media_type) in {400, 415}
    assert upstream.requests == []


async def test_oversized_json_is_refused(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    body = json.dumps({"model": "the-dearest", "more": "a" * 2048}).encode()

    assert await status_of(proxy, body, "application/json") == 413
    assert await status_of(proxy, pieces(body), "application/json") == 413
    assert upstream.requests == []


@pytest.mark.parametrize("name", ["Model", "MODEL", "mo_del", "mod-el", "\uff4dodel"])
async def test_other_spelling_of_model_is_refused(
    name: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    """Servers in Go match names in any case and take the last of equal ones."""
    body = json.dumps({"model": "rerank-1", name: "the-dearest"}).encode()

    assert await status_of(proxy, body, "application/json") == 400
    assert upstream.requests == []


@pytest.mark.parametrize("body", [b"plain {", b"--x\r\n{", b"\x00\x00\x00\x18ftyp{", b" "])
async def test_other_body_passes(body: bytes, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(RANKED))
    assert await status_of(proxy, body, "application/octet-stream") == 200
    assert [request.body for request in upstream.requests] == [body]


JSON = ["/images/generations", "/audio/speech"]
FORMS = ["/audio/transcriptions", "/audio/translations", "/images/edits"]
AZURE = {"api-key": KEY}
VERSION = "?api-version=2024-10-21"


def azure_policies(upstream: str) -> str:
    price = "price: {input: 5, output: 40}"
    paths = ", ".join(f"/v1{path}" for path in (*JSON, *FORMS))
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{upstream}/v1'}}
  azure: {{dialect: azure, base_url: '{upstream}', query: {{api-version: preview}}}}
deployments:
  studio:
    also_known_as: [media/studio]
    targets: [{{upstream: openai, model: media-1, {price}}}]
    passthrough: [{paths}]
  classic:
    targets: [{{upstream: azure, model: media-2, {price}}}]
    passthrough: [{paths}]
keys: {{widget: {{sha256: {digest(KEY)}, deployments: [studio, classic]}}}}
"""


@pytest.fixture
async def running(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    upstream.then(*[respond({"usage": {"input_tokens": 1, "output_tokens": 1}})] * 5)
    async with running_proxy(tmp_path / "policies", azure_policies(upstream.url)) as proxy:
        yield proxy


def form(model: str) -> tuple[bytes, str]:
    part = f'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n{model}\r\n--x--\r\n'
    return part.encode(), "multipart/form-data; boundary=x"


STUDIO = ("studio", "media-1", "/v1")
NAMES = dict.fromkeys(("studio", "media-1", "openai/media-1", "media/studio"), STUDIO)
CLASSIC = ("classic", "media-2", "/openai/deployments/media-2")
NAMES |= dict.fromkeys(("classic", "media-2"), CLASSIC)


@pytest.mark.parametrize(("name", "served"), NAMES.items())
async def test_path_names_a_deployment_or_a_model(
    name: str, served: tuple[str, str, str], running: Proxy, upstream: ScriptedUpstream
) -> None:
    deployment, model, prefix = served
    begin = f"/openai/deployments/{quote(name, '')}"
    data, media_type = form(model)
    async with ClientSession(base_url=running.url, headers=AZURE) as client:
        for path in (*JSON, *FORMS):
            body: Json = {"json": {"prompt": "Hi"}}
            if path in FORMS:
                body = {"data": data, "headers": {"content-type": media_type}}
            async with client.post(f"{begin}{path}{VERSION}", **body) as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-headrace-deployment"] == deployment
                assert "x-headrace-warning" not in response.headers

    requests = [request.path.partition("?")[0] for request in upstream.requests]
    assert requests == [f"{prefix}{path}" for path in (*JSON, *FORMS)]
    assert all(request.json["model"] == model for request in upstream.requests[: len(JSON)])


@for_each(
    ("name", "body", "status"),
    [
        ("nobody", {"prompt": "Hi"}, 404),
        ("n" * 300, {"prompt": "Hi"}, 400),
        ("studio", {"prompt": "Hi", "api_base": "http://x"}, 400),
    ],
)
async def test_invalid_input_is_refused(
    name: str, body: Json, status: int, running: Proxy, upstream: ScriptedUpstream
) -> None:
    data, media_type = form("another-model")
    whole_body: Json = {"json": body}
    formed: Json = {"data": data, "headers": {"content-type": media_type}}
    calls = [
        (JSON[0], whole_body, status),
        (FORMS[0], formed, status),
        ("/tuning", whole_body, 404),
    ]
    async with ClientSession(running.url, headers=AZURE) as client:
        for path, sent, expected in calls:
            async with client.post(f"/openai/deployments/{name}{path}", **sent) as response:
                assert response.status == expected, await response.text()

    assert upstream.requests == []


@pytest.mark.parametrize("path", ["/images/generations", "/completions"])
async def test_other_model_field_is_dropped(
    path: str, running: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(legacy_completion()))
    body = {"model": "media-2", "prompt": "Hi"}
    async with (
        ClientSession(base_url=running.url, headers=AZURE) as client,
        client.post(f"/openai/deployments/studio{path}", json=body) as response,
    ):
        assert response.headers["x-headrace-warning"].startswith("model dropped")

    assert upstream.requests[0].json["model"] == "media-1"
