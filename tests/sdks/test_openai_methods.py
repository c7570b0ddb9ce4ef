"""OpenAI's SDK uses moderations, images, audio, files, batches and vector stores."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpRawServer

from tests.conftest import KEY, Proxy, running_proxy
from tests.passthrough.listed_policies import digest
from tests.sdks.conftest import Drive

POLICIES = """
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1', api_key: '${{UPSTREAM_KEY}}'}}
keys:
  support-widget:
    sha256: {digest}
    deployments: [moderation, pictures, sounds, files]
deployments:
  moderation:
    targets: [{{upstream: openai, model: omni-moderation-latest, price: {{input: 0, output: 0}}}}]
    passthrough: [/v1/moderations]
  pictures:
    targets: [{{upstream: openai, model: gpt-image-1, price: {{input: 5, output: 40}}}}]
    passthrough: [/v1/images/generations, /v1/images/edits]
  sounds:
    targets: [{{upstream: openai, model: gpt-4o-transcribe, price: {{input: 6, output: 10}}}}]
    passthrough: [/v1/audio/transcriptions, /v1/audio/speech]
  files:
    targets: [{{upstream: openai, model: files, price: {{input: 0, output: 0}}}}]
    passthrough:
      - {{path: /v1/files, methods: [GET, POST]}}
      - {{path: '/v1/files/{{id}}', methods: [GET, DELETE]}}
      - {{path: '/v1/files/{{id}}/content', methods: [GET]}}
      - {{path: /v1/batches, methods: [GET, POST]}}
      - {{path: '/v1/batches/{{id}}', methods: [GET]}}
      - {{path: '/v1/batches/{{id}}/cancel', methods: [POST]}}
      - {{path: /v1/vector_stores, methods: [GET, POST]}}
      - {{path: '/v1/vector_stores/{{id}}/search', methods: [POST]}}
"""
SOUND = bytes(range(256)) * 4096
PICTURE = base64.b64encode(b"\x89PNG" + SOUND[:3000]).decode()
FILE = {
    "id": "file-1",
    "object": "file",
    "bytes": 3,
    "created_at": 1,
    "filename": "heard.wav",
    "purpose": "batch",
    "status": "processed",
}
BATCH = {
    "id": "batch_1",
    "object": "batch",
    "completion_window": "24h",
    "created_at": 1,
    "endpoint": "/v1/chat/completions",
    "input_file_id": "file-1",
    "status": "validating",
}
STORE = {
    "id": "vs_1",
    "object": "vector_store",
    "created_at": 1,
    "name": "n",
    "usage_bytes": 0,
    "status": "completed",
    "last_active_at": 1,
    "file_counts": {"in_progress": 0, "completed": 0, "failed": 0, "cancelled": 0, "total": 0},
}
CATEGORIES = {"hate": False, "violence": False}
MODERATED = {"flagged": False, "categories": CATEGORIES, "category_scores": {}}
USAGE = {"total_tokens": 60, "input_tokens": 10, "output_tokens": 50}
PAINTED = {"created": 1, "data": [{"b64_json": PICTURE}], "usage": USAGE}
TRANSCRIPT = {"text": "hello", "usage": {"type": "tokens", **USAGE}}
EVENTS = (
    b'data: {"type":"transcript.text.delta","delta":"he"}\n\n'
    b'data: {"type":"transcript.text.done","text":"hello","usage":{"type":"tokens",'
    b'"input_tokens":10,"output_tokens":50,"total_tokens":60}}\n\n'
)
SEARCHED = {"object": "vector_store.search_results.page", "search_query": ["q"], "data": []}
ANSWERS: dict[tuple[str, str], Any] = {
    ("POST", "/v1/moderations"): {"id": "m", "model": "omni", "results": [MODERATED]},
    ("POST", "/v1/images/generations"): PAINTED,
    ("GET", "/v1/files/file-1"): FILE,
    ("GET", "/v1/files"): {"object": "list", "data": [FILE], "has_more": False},
    ("DELETE", "/v1/files/file-1"): {"id": "file-1", "object": "file", "deleted": True},
    ("POST", "/v1/batches"): BATCH,
    ("GET", "/v1/batches/batch_1"): BATCH,
    ("POST", "/v1/batches/batch_1/cancel"): {**BATCH, "status": "cancelling"},
    ("POST", "/v1/vector_stores"): STORE,
    ("POST", "/v1/vector_stores/vs_1/search"): SEARCHED,
}


class Provider:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["authorization"] == "Bearer sk-upstream-secret"
        kind = request.headers.get("content-type", "")
        body: Any = None
        if kind.startswith("multipart/"):
            form = await request.post()
            body = {
                name: part.file.read() if isinstance(part, web.FileField) else part
                for name, part in form.items()
            }
        elif raw := await request.read():
            body = json.loads(raw)
        self.asked.append((request.method, request.path_qs, body))
        if request.path == "/v1/audio/transcriptions":
            if body.get("stream") == "true":
                return web.Response(body=EVENTS, content_type="text/event-stream")
            return web.json_response(TRANSCRIPT)
        if request.path == "/v1/audio/speech" or request.path.endswith("/content"):
            return web.Response(body=SOUND, content_type="audio/mpeg")
        if (request.method, request.path) == ("POST", "/v1/files"):
            return web.json_response({**FILE, "bytes": len(body["file"])})
        if request.path.endswith("/missing"):
            error = {"message": "No such file", "type": "invalid_request_error"}
            return web.json_response({"error": error}, status=404)
        return web.json_response(ANSWERS[request.method, request.path])


@pytest.fixture
async def provider() -> Provider:
    return Provider()


@pytest.fixture
async def proxy(
    provider: Provider, tmp_path: Path, aiohttp_raw_server: AiohttpRawServer
) -> AsyncIterator[Proxy]:
    server = await aiohttp_raw_server(provider.handle)
    url = str(server.make_url("")).rstrip("/")
    policies = POLICIES.format(url=url, digest=digest(KEY))
    async with running_proxy(tmp_path / "policies", policies) as running:
        yield running


def call(method: str, *of: str, do: str = "call", **fields: Any) -> dict[str, Any]:
    return {"do": do, "method": method, "of": of, "with": fields}


async def test_moderations_images_audio(drive: Drive, proxy: Proxy, provider: Provider) -> None:
    observed = await drive(
        "openai",
        call("moderations.create", model="moderation", input="kind"),
        call("images.generate", model="gpt-image-1", prompt="a cat", n=1),
        call("audio.transcriptions.create", model="gpt-4o-transcribe", file="RIFF"),
        call(
            "audio.transcriptions.create",
            do="call-stream",
            model="gpt-4o-transcribe",
            file="RIFF",
            stream=True,
        ),
        call("audio.speech.create", model="sounds", voice="alloy", input="hello"),
    )

    assert [document["ok"] for document in observed] == [True] * 5, observed
    moderated, painted, received, streamed, spoken = observed
    assert moderated["data"]["results"][0]["flagged"] is False
    assert painted["data"]["data"][0]["b64_json"] == PICTURE
    assert received["data"]["text"] == "hello"
    assert [document["type"] for document in streamed["data"]][-1] == "transcript.text.done"
    assert (spoken["data"], spoken["text"]) == (len(SOUND), hashlib.sha256(SOUND).hexdigest())
    bodies = [body for _, _, body in provider.asked]
    assert bodies[0] == {"model": "omni-moderation-latest", "input": "kind"}
    assert bodies[2]["file"] == b"RIFF"
    assert bodies[4]["model"] == "gpt-4o-transcribe"
    records = await proxy.sink.wait(5)
    assert [record.outcome for record in records] == ["success"] * 5
    costs = [0, 10 * 5000 + 50 * 40000, *[10 * 6000 + 50 * 10000] * 2, None]
    assert [record.billing.cost for record in records] == costs


async def test_files_batches_stores(drive: Drive, proxy: Proxy, provider: Provider) -> None:
    steps = [
        call("files.create", file="abc", purpose="batch"),
        call("files.list", purpose="batch", limit=5),
        call("files.retrieve", "file-1"),
        call("files.content", "file-1"),
        call("files.delete", "file-1"),
        call(
            "batches.create",
            input_file_id="file-1",
            endpoint="/v1/chat/completions",
            completion_window="24h",
        ),
        call("batches.retrieve", "batch_1"),
        call("batches.cancel", "batch_1"),
        call("vector_stores.create", name="n"),
        call("vector_stores.search", "vs_1", query="q"),
    ]

    observed = await drive("openai", *steps)

    assert [document["ok"] for document in observed] == [True] * len(steps), observed
    assert observed[0]["data"]["bytes"] == 3
    assert observed[1]["data"]["data"][0]["id"] == "file-1"
    assert (observed[3]["data"], observed[3]["text"]) == (
        len(SOUND),
        hashlib.sha256(SOUND).hexdigest(),
    )
    assert observed[4]["data"]["deleted"] is True
    assert observed[7]["data"]["status"] == "cancelling"
    assert provider.asked[1][:2] == ("GET", "/v1/files?limit=5&purpose=batch") or (
        provider.asked[1][1] == "/v1/files?purpose=batch&limit=5"
    )
    records = await proxy.sink.wait(len(steps))
    assert {record.outcome for record in records} == {"success"}
    assert records[3].head.route == "/v1/files/{id}/content"


async def test_errors_are_sdk_exceptions(drive: Drive, provider: Provider) -> None:
    [missing, not_listed, other_model, no_key] = [
        *await drive(
            "openai",
            call("files.retrieve", "missing"),
            call("fine_tuning.jobs.list"),
            call("audio.transcriptions.create", model="gpt-4o", file="RIFF"),
        ),
        *await drive("openai", call("files.list"), key="hr-wrong"),
    ]

    assert (missing["exception"], missing["message"].count("No such file")) == ("NotFoundError", 1)
    assert not_listed["exception"] == "NotFoundError"
    assert other_model["exception"] == "BadRequestError"
    assert 'must be "gpt-4o-transcribe"' in other_model["message"]
    assert no_key["exception"] == "AuthenticationError"
    assert len(provider.asked) == 1
