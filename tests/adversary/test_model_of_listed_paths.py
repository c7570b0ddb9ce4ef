"""On a listed path no client can leave the choice of the model to the upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, running_proxy
from tests.doubles import ScriptedUpstream, answer
from tests.passthrough.world import BEARER, digest

TARGETS = {
    "priced": "{upstream: openai, model: image-1, price: {input: 5, output: 40}}",
    "unpriced": "{upstream: openai, model: image-2}",
    "free": "{upstream: openai, model: files, price: {input: 0, output: 0}}",
    "in the URL": "{upstream: azure, model: image-3}",
}
EDITS, CANCEL = "/v1/images/edits", "/v1/batches/{id}/cancel"
BODIES: dict[str, dict[str, Any]] = {
    "a form": {"name": "prompt", "filename": None},
    "a form with a file": {"name": "image", "filename": "a.png"},
    "a form with a list of models": {"name": "model[]", "filename": None},
    "JSON": {},
}
REQUIRED = {"priced", "unpriced"}
"""Targets at which the upstream would choose a model that the policy does not name."""


def policies(url: str) -> str:
    listed = "\n".join(
        f"  {name.replace(' ', '-').lower()}: "
        f"{{targets: [{target}], passthrough: [{EDITS}, '{CANCEL}']}}"
        for name, target in TARGETS.items()
    )
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
    upstream.then(answer({}))
    async with (
        running_proxy(tmp_path / "policies", policies(upstream.url)) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER) as session,
    ):
        yield session


async def post(client: ClientSession, target: str, path: str, body: str) -> tuple[int, Any]:
    if body == "JSON":
        sent_value: Any = {"json": {"prompt": "A cat."}}
    else:
        form = aiohttp.FormData(default_to_multipart=True, quote_fields=False)
        model = TARGETS[target].partition("model: ")[2].split(",")[0].strip("}")
        form.add_field(value=model, **BODIES[body])
        sent_value = {"data": form}
    headers = {"x-headrace-deployment": target.replace(" ", "-").lower()}
    async with client.post(path, headers=headers, **sent_value) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("path", [EDITS, CANCEL.format(id="batch_1")])
@pytest.mark.parametrize("target", TARGETS)
async def test_a_body_names_the_model_of_the_target(
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
