"""``headrace demo`` with the real model, and the examples that it prints."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.dialects.responses.sealing import ResponseIds
from proxy.settings import Address
from tests.conftest import KEY
from tests.demo.test_model import installed_model
from tests.sdks.conftest import PYTHON
from tests.servers import free_port, program
from tests.test_pipeline import AZURES, ROUTES, texts

TOP = Path(__file__).parents[2]
SECRET = "a secret of replicas"


@pytest.fixture
async def printed(tmp_path: Path) -> AsyncIterator[str]:
    """Start the demo and yield its output until it is ready."""
    installed_model(Address("127.0.0.1", 1))
    policies = tmp_path / "policies"
    shutil.copytree(TOP / "policies", policies)
    upstreams = policies / "upstreams.yaml"
    upstreams.write_text(upstreams.read_text().replace(":8089", f":{free_port()}"))
    free = "127.0.0.1:0"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "demo", "--policies", str(policies)),
        *("--listen", free, "--admin-listen", free),
        stdout=PIPE,
        stderr=STDOUT,
        cwd=TOP,
        env={**os.environ, "HEADRACE_SECRET": SECRET},
    )
    assert process.stdout is not None
    text = b""
    async with asyncio.timeout(60):
        while b"/metrics" not in text:
            line = await process.stdout.readline()
            assert line, text.decode()
            text += line
    try:
        yield text.decode()
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            remainder = await process.stdout.read()
            code = await process.wait()
        assert code == 0, remainder.decode()


def commands(printed: str) -> list[str]:
    """Return the printed examples as shell commands."""
    indented = re.findall(r"(?:^  .*\n(?:^  .*\n|^\s*\n(?=  ))*)", printed, re.MULTILINE)
    text = "\n".join("".join(indented).splitlines())
    parts = re.split(r"\n(?=  (?:curl|python))", text)
    return ["\n".join(line[2:] for line in part.splitlines()) for part in parts]


async def shell(command: str) -> str:
    """Run an example with the ``python`` of the environment with the SDKs."""
    path = f"{PYTHON.parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stdout=PIPE, stderr=PIPE, env={**os.environ, "PATH": path}
    )
    async with asyncio.timeout(60):
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()


async def test_printed_examples_work(printed: str) -> None:
    program("curl")
    legacy, chat, messages, responses, sdk, models, metrics = commands(printed)

    completed = json.loads(await shell(legacy))
    streamed = await shell(chat)
    message = json.loads(await shell(messages))
    response = json.loads(await shell(responses))
    sdk_output = await shell(sdk)
    compared = json.loads(await shell(models))
    scraped = await shell(metrics)

    assert completed["choices"][0]["text"].startswith(" Paris.")
    assert completed["usage"]["completion_tokens"] == 8
    assert streamed.rstrip().endswith("data: [DONE]")
    assert '"usage"' not in streamed
    assert (message["type"], message["content"][0]["type"]) == ("message", "text")
    assert 0 < message["usage"]["output_tokens"] <= 16
    assert (response["object"], response["output"][0]["type"]) == ("response", "message")
    assert 0 < response["usage"]["output_tokens"] <= 16
    assert len(sdk_output.strip()) > 10
    assert [c["model"] for c in compared["choices"]] == ["smol-base", "smol-chat"]
    assert all(c["usage"]["completion_tokens"] > 0 for c in compared["choices"])
    assert 'headrace_requests_total{deployment="support-chat"' in scraped
    assert 'headrace_cost_usd_total{cost_type="input",deployment="compare"' in scraped


async def test_model_answers_each_route(printed: str) -> None:
    match = re.search(r"http://[0-9.:]+", printed)
    assert match is not None
    extra = {"model": "support-chat", "max_tokens": 4, "temperature": 0}
    async with aiohttp.ClientSession(base_url=match[0]) as client:
        for name, route in ROUTES.items():
            headers = {k: v.replace(KEY, "hr-demo-key") for k, v in route.credential.items()}
            for streamed in (False, True) if route.streams else (False,):
                body = {**route.body(streamed=streamed), **extra}
                path = route.path.replace(AZURES, "/openai/deployments/support-chat")
                async with client.post(path, headers=headers, json=body) as response:
                    raw = await response.read()
                assert response.status == 200, (name, raw)
                assert texts(route, raw, streamed=streamed).strip(), (name, raw)


async def check_stored_responses(url: str) -> None:
    """Refer to a response of the demo by its sealed id."""
    request = {"model": "support-chat", "input": "Say hello.", "max_output_tokens": 4}
    bearer = {"authorization": "Bearer hr-demo-key"}
    async with aiohttp.ClientSession(base_url=url, headers=bearer) as client:

        async def respond(**body: Any) -> tuple[int, Any]:
            async with client.post("/v1/responses", json={**request, **body}) as response:
                return response.status, await response.json()

        _, stored = await respond()
        status, refused = await respond(previous_response_id=stored["id"])
        unknown_status, unknown = await respond(previous_response_id="resp_1")

    reference = ResponseIds.of([SECRET]).open(stored["id"], "demo")
    assert reference is not None
    assert (reference.deployment, reference.target) == ("support-chat", "local/smol")
    assert status == 400  # from the model's server, which stores nothing
    assert "llama.cpp does not support" in refused["error"]["message"]
    assert (unknown_status, unknown["error"]["param"]) == (404, "previous_response_id")


async def test_legacy_client_is_served_as_chat(printed: str) -> None:
    match = re.search(r"http://[0-9.:]+", printed)
    assert match is not None
    async with (
        aiohttp.ClientSession() as client,
        client.post(
            f"{match[0]}/inference/v1/completions",
            headers={"Authorization": "Bearer hr-demo-key"},
            json={"model": "search-answers", "prompt": "Say hello.", "max_tokens": 5},
        ) as response,
    ):
        answer = await response.json()

    assert response.status == 200, answer
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["text"]
    await check_stored_responses(match[0])  # here, because starts of the model are slow
