"""Ids of provider containers belong to the provider account. Responses show them unchanged, and a
request may name one only if the upstream accepts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import KEY
from tests.dialects.test_leaning import House, house, policy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    item_events,
    response,
    response_events,
    stream,
    text_item,
)

OWN_VALUE = "cntr_" + "0af1" * 12
CITED: Json = {"type": "container_file_citation", "container_id": OWN_VALUE}
RAN: Json = {
    **{"id": "ci_1", "type": "code_interpreter_call", "status": "completed"},
    **{"code": "1 + 1", "container_id": OWN_VALUE, "outputs": []},
}
SHELL: Json = {
    **{"id": "sh_1", "type": "shell_call", "call_id": "call_1", "status": "completed"},
    "environment": {"type": "container_reference", "container_id": OWN_VALUE},
}
SPOKEN = text_item("See the file.")
SPOKEN["content"][0]["annotations"] = [CITED]
TOOLS: list[Json] = [
    {"type": "code_interpreter", "container": OWN_VALUE},
    {"type": "shell", "environment": {"type": "container_reference", "container_id": OWN_VALUE}},
]
WHOLE = response(RAN, SHELL, SPOKEN, tools=TOOLS[:1])
LISTED = """    passthrough:
      - {path: '/v1/containers/{id}/files/{file}', methods: [GET]}
      - /v1/anything
"""
NAMING: dict[str, Json] = {
    "a tool": {"tools": TOOLS[:1]},
    "the environment of a tool": {"tools": TOOLS[1:]},
    "an item": {"input": [RAN]},
    "the environment of an item": {"input": [SHELL]},
}
"""Requests that name a container."""


def listing(upstream: str, accepts: str = "") -> str:
    """Return a policy that lists paths, and whose upstream may accept fields."""
    upper, sep, remainder = policy(upstream).partition("  resilient:\n")
    text = upper + LISTED + sep + remainder
    return text.replace("openai: {dialect: openai,", f"openai: {{dialect: openai, {accepts}")


async def post(context: House, path: str, body: Json) -> tuple[int, Json]:
    headers = {"authorization": f"Bearer {KEY}"}
    body = {"model": "gpt-4o-mini", "input": "x", **body}
    async with context.session.post(path, headers=headers, json=body) as response_item:
        return response_item.status, await response_item.json()


@pytest.mark.parametrize("streamed", [False, True])
async def test_responses_show_ids_unchanged(
    streamed: bool, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    events = response_events(item_events(0, SPOKEN, "See the ", "file."), document=WHOLE)
    upstream.answer_with(stream(events, is_done=False) if streamed else answer(WHOLE))
    request: Json = {"stream": True} if streamed else {}
    async with house(tmp_path / "policies", upstream, listing(upstream.url)) as context:
        status, document = await context.ask(**request)

    assert status == 200, document
    output = document["events"][-1]["response"] if streamed else document
    assert json.dumps(output).count(OWN_VALUE) == 4


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/anything"])
@pytest.mark.parametrize("name", NAMING)
async def test_ids_in_requests_require_accepts(
    name: str, path: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    matches: list[tuple[int, Json]] = []
    upstream.answer_with(answer(response()))
    for accepts in ("", "accepts: [container.id, container_id],"):
        policies = listing(upstream.url, accepts)
        async with house(tmp_path / "policies", upstream, policies) as context:
            matches.append(await post(context, path, NAMING[name]))

    (refused, error), (accepted, _) = matches
    assert (refused, accepted) == (400, 200)
    assert "unless the upstream accepts" in error["error"]["message"]
    [request] = upstream.requests
    sent_body = {field: request.json[field] for field in NAMING[name]}
    for item in sent_body.get("input", []):
        item["id"] = RAN["id"] if item["type"] == RAN["type"] else SHELL["id"]
    assert sent_body == NAMING[name]


@pytest.mark.parametrize("tool", [{"type": "auto"}, {"type": "auto", "memory_limit": "4g"}])
async def test_new_containers_need_no_id(
    tool: Json, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(answer(response()))
    tools = [{"type": "code_interpreter", "container": tool}]
    async with house(tmp_path / "policies", upstream, listing(upstream.url)) as context:
        status, _ = await post(context, "/v1/responses", {"tools": tools})

    assert (status, upstream.requests[0].json["tools"]) == (200, tools)


async def test_listed_paths_forward_ids_unchanged(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(answer(b"x", media_type="image/png"))
    path = f"/v1/containers/{OWN_VALUE}/files/cfile_1"
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        house(tmp_path / "policies", upstream, listing(upstream.url)) as context,
        context.session.get(path, headers=headers) as response_item,
    ):
        assert response_item.status == 200

    assert upstream.requests[0].path == path


ACCOUNT_STATE: list[Json] = [
    {"container": OWN_VALUE},
    {"previous_response_id": "resp_1"},
    {"conversation": "conv_1"},
    {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
]


@pytest.mark.parametrize("body", ACCOUNT_STATE)
async def test_listed_paths_refuse_account_state(
    body: Json, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with house(tmp_path / "policies", upstream, listing(upstream.url)) as context:
        status, refused = await post(context, "/v1/anything", body)

    assert status == 400, refused
    message = "clients may not set this field, unless the upstream accepts"
    assert message in refused["error"]["message"]
    assert upstream.requests == []


async def test_ids_of_files_require_accepts(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    part = {"type": "input_file", "file_id": "file-1"}
    upstream.answer_with(answer(response()))
    matches = []
    for accepts in ("", "accepts: ['input[].content[].file_id'],"):
        policies = listing(upstream.url, accepts)
        async with house(tmp_path / "policies", upstream, policies) as context:
            matches.append(
                await context.ask(model="kept", input=[{"role": "user", "content": [part]}])
            )

    assert [status for status, _ in matches] == [400, 200]
    assert matches[0][1]["error"]["param"] == "input[].content[].file_id"
