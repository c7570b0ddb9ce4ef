"""An outage that an upstream reports as a request error is not the client's fault."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KEY
from tests.dialects.test_leaning import House, house
from tests.doubles import Json, Script, ScriptedUpstream, answer, response

HTML = b"<html><body>default backend</body></html>"
TALK: Json = {"id": "conv_1", "object": "conversation"}


def saying(status: int, message: str, code: str | None = None) -> Script:
    return answer({"error": {"message": message, "type": "bad_request", "code": code}}, status)


OUTAGES: dict[str, tuple[Script, str]] = {
    "a balancer's page": (answer(HTML, 404, media_type="text/html"), "upstream_not_found"),
    "nothing at all": (answer(b"", 404), "upstream_not_found"),
    "no such method": (answer(b"", 405), "upstream_not_found"),
    "a model of the past": (saying(400, "No.", "model_decommissioned"), "upstream_not_found"),
    "no credit": (
        saying(400, "Your credit balance is too low to access the API."),
        "upstream_forbids",
    ),
    "a bill": (saying(400, "No.", "billing_hard_limit_reached"), "upstream_forbids"),
    "no key": (
        answer([{"error": {"code": 400, "message": "API key not valid. Please pass one."}}], 400),
        "upstream_forbids",
    ),
}


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path / "policies", upstream) as running:
        yield running


async def send(house: House, method: str, path: str, body: Json | None = None) -> Json:
    headers = {"authorization": f"Bearer {KEY}", "x-headrace-deployment": "chatting"}
    if "chat/" not in path:
        headers["x-headrace-deployment"] = "guarded"
    async with house.session.request(method, path, headers=headers, json=body) as response:
        document: Json = await response.json()
        return document


@pytest.mark.parametrize(("outage", "code"), [*OUTAGES.values()], ids=[*OUTAGES])
async def test_outage_never_blames_client(outage: Script, code: str, gateway: House) -> None:
    gateway.upstream.then(answer(response()), answer(TALK))
    talk_of: Any = {"model": "watched", "input": "Hi"}
    value = (await send(gateway, "POST", "/v1/responses", talk_of))["id"]
    talk = (await send(gateway, "POST", "/v1/conversations", {}))["id"]
    gateway.upstream.answer_with(outage)
    chat = {"model": "chatter", "messages": [{"role": "user", "content": "Hi"}]}
    requests: list[tuple[str, str, Json | None]] = [
        ("POST", "/v1/responses", talk_of),
        ("POST", "/v1/responses", {**talk_of, "previous_response_id": value}),
        ("POST", "/v1/responses", {**talk_of, "conversation": talk}),
        ("GET", f"/v1/responses/{value}", None),
        ("GET", f"/v1/conversations/{talk}", None),
        ("POST", "/v1/chat/completions", {**chat, "metadata": {"session_id": "s"}}),
    ]

    for item in requests:
        await send(gateway, *item)

    records = (await gateway.proxy.sink.wait(2 + len(requests)))[2:]
    assert [record.outcome for record in records] == ["upstream_error"] * len(requests)
    assert {record.attempts[-1].error for record in records} == {code}
