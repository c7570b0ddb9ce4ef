"""Azure's clients name a deployment in the path, also for images and audio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, Proxy, running_proxy
from tests.doubles import Json, ScriptedUpstream, answer, legacy
from tests.passthrough.world import digest

JSON = ["/images/generations", "/audio/speech"]
FORMS = ["/audio/transcriptions", "/audio/translations", "/images/edits"]
AZURE = {"api-key": KEY}
VERSION = "?api-version=2024-10-21"


def world(upstream: str) -> str:
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
    upstream.then(*[answer({"usage": {"input_tokens": 1, "output_tokens": 1}})] * 5)
    async with running_proxy(tmp_path / "policies", world(upstream.url)) as proxy:
        yield proxy


def form(model: str) -> tuple[bytes, str]:
    part = f'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\n{model}\r\n--x--\r\n'
    return part.encode(), "multipart/form-data; boundary=x"


NAMES = {
    "studio": ("studio", "media-1", "/v1"),
    "media-1": ("studio", "media-1", "/v1"),
    "openai/media-1": ("studio", "media-1", "/v1"),
    "media/studio": ("studio", "media-1", "/v1"),
    "classic": ("classic", "media-2", "/openai/deployments/media-2"),
    "media-2": ("classic", "media-2", "/openai/deployments/media-2"),
}


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


REFUSED: dict[str, tuple[str, Json, int]] = {
    "unknown name": ("nobody", {"prompt": "Hi"}, 404),
    "long name": ("n" * 300, {"prompt": "Hi"}, 400),
    "field of the policy": ("studio", {"prompt": "Hi", "api_base": "http://x"}, 400),
}


@pytest.mark.parametrize(("name", "body", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_bad_input_is_refused(
    name: str, body: Json, status: int, running: Proxy, upstream: ScriptedUpstream
) -> None:
    data, media_type = form("media-1")
    begin = f"{running.url}/openai/deployments/{name}"
    async with ClientSession(headers=AZURE) as client:
        async with client.post(f"{begin}{JSON[0]}", json=body) as response:
            assert response.status == status, await response.text()
        if name == "studio":
            data, media_type = form("another-model")
        headers = {"content-type": media_type}
        async with client.post(f"{begin}{FORMS[0]}", data=data, headers=headers) as response:
            assert response.status == status, await response.text()
        async with client.post(f"{begin}/fine_tuning/jobs", json=body) as response:
            assert response.status == 404

    assert upstream.requests == []


@pytest.mark.parametrize("path", ["/images/generations", "/completions"])
async def test_drops_other_model(path: str, running: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(legacy()))
    body = {"model": "media-2", "prompt": "Hi"}
    async with (
        ClientSession(base_url=running.url, headers=AZURE) as client,
        client.post(f"/openai/deployments/studio{path}", json=body) as response,
    ):
        assert response.headers["x-headrace-warning"].startswith("model dropped")

    assert upstream.requests[0].json["model"] == "media-1"
