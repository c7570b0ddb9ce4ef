"""Policies agree with themselves as a candidate, and an explanation agrees with the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import KEY
from tests.dialects.test_leaning import House, house, policy
from tests.doubles import Json, ScriptedUpstream, answer, chat, response

PASSING = """  passing:
    targets: [{upstream: openai, model: rerank-1, price: {input: 1, output: 1}}]
    passthrough: [/v1/rerank]
    only_passthrough: true
  drawing:
    targets:
      - {upstream: openai, model: light, weight: 1, price: {input: 1, output: 2}}
      - {upstream: spare, model: heavy, weight: 99, price: {input: 1, output: 2}}
policies:
"""
TALK: Json = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}
PAGE: Json = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
RESULT = response()
FIELDS = {"model": "gpt-4o-mini", "input": "Go on."}
Given = Callable[[str, str], tuple[str, str, Json | None, Json]]
"""Of a response's and a conversation's id: the method, the path, the body, and what comes."""
ITEM: Json = {"type": "message", "role": "user", "content": "Where?"}
WAYS: dict[str, Given] = {
    "a chat": lambda r, c: (
        *("POST", "/v1/chat/completions"),
        {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hi"}]},
        chat("Hi."),
    ),
    "of several by weight": lambda r, c: (
        *("POST", "/v1/responses"),
        {**FIELDS, "model": "drawing"},
        RESULT,
    ),
    "in the background": lambda r, c: (
        *("POST", "/v1/responses"),
        {**FIELDS, "background": True},
        response(status="queued", background=True),
    ),
    "from a response": lambda r, c: (
        *("POST", "/v1/responses"),
        {**FIELDS, "previous_response_id": r},
        RESULT,
    ),
    "from a conversation": lambda r, c: (
        *("POST", "/v1/responses"),
        {**FIELDS, "conversation": c},
        RESULT,
    ),
    "by a model that has not its response": lambda r, c: (
        *("POST", "/v1/responses"),
        {**FIELDS, "model": "keeper", "previous_response_id": r},
        RESULT,
    ),
    "a response": lambda r, c: ("GET", f"/v1/responses/{r}", None, RESULT),
    "what was asked": lambda r, c: ("GET", f"/v1/responses/{r}/input_items", None, PAGE),
    "a conversation": lambda r, c: ("GET", f"/v1/conversations/{c}", None, TALK),
    "an item more": lambda r, c: (
        *("POST", f"/v1/conversations/{c}/items"),
        {"items": [ITEM]},
        PAGE,
    ),
    "one that nobody has": lambda r, c: ("GET", "/v1/responses/resp_x", None, RESULT),
    "a path": lambda r, c: ("POST", "/v1/rerank", {"query": "a"}, {"results": []}),
}


async def made(house: House) -> tuple[str, str]:
    house.upstream.answer_with(answer(RESULT))
    stored_text = await house.id_of()
    house.upstream.answer_with(answer(TALK))
    by_name = {"x-headrace-deployment": "support-chat", "authorization": f"Bearer {KEY}"}
    async with house.session.post("/v1/conversations", headers=by_name, json={}) as response:
        return stored_text, (await response.json())["id"]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_same_policy_agrees(way: Given, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    policies = policy(upstream.url).replace("policies:\n", PASSING)
    policies = policies.replace("chatting]", "chatting, passing, drawing]")
    (tmp_path / "candidate").mkdir()
    (tmp_path / "candidate" / "p.yaml").write_text(policies)
    async with house(
        tmp_path / "policies", upstream, policies, candidate=tmp_path / "candidate"
    ) as context:
        method, path, body, document = way(*await made(context))
        upstream.answer_with(answer(document))
        headers = {"authorization": f"Bearer {KEY}"}
        async with context.session.request(method, path, headers=headers, json=body) as response:
            request_id = response.headers["x-request-id"]
            await response.read()
        [*_, record] = await context.proxy.sink.wait(3)
        reasons = await _explained(context, request_id)
        candidate = await _asked(context, "/candidate")

    by = {reason["about"]: reason for reason in reasons}
    assert candidate["decisions"] == []
    if record.call is None:  # no policy has decided it
        return
    assert by["candidate"]["decided"] == "same decision"
    happened = [reason for reason in by["outcome"].get("parts", ()) if reason["about"] == "attempt"]
    if not happened:
        assert by["result"]["decided"].startswith(f"rejected with {record.status} ")
        return
    [attempt] = happened
    request = attempt["decided"].partition(" ")[0]
    assert by["result"]["decided"] == f"route to {request}"
    if record.call.state_ref is not None:
        tried = [reason["decided"] for reason in by["targets"]["parts"]]
        assert all(
            reason.endswith("excluded") for reason in tried if not reason.startswith(request)
        )


async def _explained(house: House, request_id: str) -> list[Any]:
    return list((await _asked(house, f"/explain/{request_id}"))["decisions"])


async def _asked(house: House, path: str) -> Any:
    headers = {"accept": "application/json"}
    async with house.session.get(house.proxy.admin + path, headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.json()
