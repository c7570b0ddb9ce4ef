"""Conversations that a provider keeps, over sockets: with guards and limits, for other keys, after
a restart, and for calls that go on with one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.test_stored_state import OTHER_KEY, StatefulProxy, policy, stateful_proxy
from tests.doubles import (
    Json,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    cut_before_head,
    item_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
)

EMAIL = "bob@example.com"
TALK: Json = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {"a": "b"}}
USER_ITEM: Json = {
    **{"id": "msg_a1", "type": "message", "role": "user", "status": "completed"},
    "content": [{"type": "input_text", "text": "Where?"}],
}
PAGE: Json = {
    **{"object": "list", "data": [USER_ITEM]},
    **{"first_id": "msg_a1", "last_id": "msg_a1", "has_more": False},
}
QUESTION: Json = {"type": "message", "role": "user", "content": "Where?"}


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[StatefulProxy]:
    upstream.answer_with(respond(TALK))
    limits = "    limits: [{name: few, requests: 3 per hour, per: key}]\n"
    policies = policy(upstream.url).replace("  guarding:\n", f"  guarding:\n{limits}")
    async with stateful_proxy(tmp_path / "policies", upstream, policies) as running:
        yield running


async def call_conversation(
    context: StatefulProxy, path: str = "", method: str = "GET", body: Any = None, **options: str
) -> tuple[int, Json, dict[str, str]]:
    return await context.send(f"/v1/conversations{path}", method, body, **options)


async def create_conversation(
    context: StatefulProxy, to: str = "support-chat", **fields: Any
) -> str:
    """Create a conversation with a deployment and return its id for the client."""
    context.upstream.answer_with(respond(TALK))
    headers = {"x-headrace-deployment": to}
    status, body, _ = await call_conversation(context, "", "POST", fields, **headers)
    assert status == 200, body
    return str(body["id"])


async def item_of(context: StatefulProxy, talk: str) -> str:
    """Return the client's id of the item of a conversation."""
    context.upstream.answer_with(respond(PAGE))
    _, page, _ = await call_conversation(context, f"/{talk}/items")
    return str(page["data"][0]["id"])


async def test_conversation_is_created_at_its_target(gateway: StatefulProxy) -> None:
    text = await create_conversation(gateway, "resilient", items=[QUESTION], metadata={"a": "b"})

    assert text.startswith("conv_")
    assert text != "conv_1"
    request = gateway.last
    assert (request.method, request.path) == ("POST", "/v1/conversations")
    assert request.json == {"items": [QUESTION], "metadata": {"a": "b"}}
    [record] = await gateway.proxy.sink.wait()
    assert (record.outcome, record.head.endpoint) == ("success", "conversations")
    assert record.plan.deployment == "resilient"
    assert (record.billing.cost, record.billing.tokens.total) == (0, 0)


async def test_any_model_continues_it(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    target = "{upstream: openai, model: gpt-4o, price: {input: 1, output: 2}}"
    mini = target.replace("gpt-4o", "gpt-4o-mini")
    policies = policy(upstream.url, targets=f"{target}, {mini}")
    async with stateful_proxy(tmp_path / "policies", upstream, policies) as context:
        text = await create_conversation(context)
        document = response(conversation={"id": "conv_1"})
        text_events = item_events(0, text_item(" Paris."), " Par", "is.")
        events = response_events(text_events, document=document)
        upstream.then(respond(document), respond(document), stream(events, is_done=False))

        first_item = await context.ask(conversation=text)
        second = await context.ask(conversation={"id": text}, model="gpt-4o")
        status, streamed = await context.ask(conversation=text, stream=True)

    for item in (first_item, second):
        assert (item[0], item[1]["conversation"]) == (200, {"id": text}), item
    assert status == 200
    ends = [item["response"] for item in streamed["events"] if "response" in item]
    assert {json.dumps(item["conversation"]) for item in ends} == {json.dumps({"id": text})}
    requests = [item.json for item in upstream.requests[1:]]
    assert [item["conversation"] for item in requests] == ["conv_1"] * 3
    assert [item["model"] for item in requests] == ["gpt-4o-mini", "gpt-4o", "gpt-4o-mini"]


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"conversation": "conv_1"}, 404, "conversation"),
        ({"conversation": {"id": "conv_1"}}, 404, "conversation"),
        ({"conversation": {}}, 400, "conversation.id"),
        ({"conversation": 1}, 400, "conversation"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, 400, "conversation"),
    ],
)
async def test_ids_of_other_keys_are_refused(
    fields: Json, status: int, param: str, gateway: StatefulProxy
) -> None:
    answered, body = await gateway.ask(**fields)

    assert (answered, body["error"]["param"]) == (status, param)
    assert gateway.upstream.requests == []


async def test_conversation_stays_at_its_target(gateway: StatefulProxy) -> None:
    text = await create_conversation(gateway, "resilient")
    elsewhere = await gateway.ask(conversation=text)
    other_key = await gateway.ask(conversation=text, key=OTHER_KEY)
    gateway.upstream.then(respond(response()))
    on, _ = await gateway.ask(conversation=text, model="primary")

    for status, body in (elsewhere, other_key):
        assert (status, body["error"]["param"]) == (404, "conversation")
    assert on == 200


async def test_guards_inspect_written_and_returned_items(gateway: StatefulProxy) -> None:
    text = await create_conversation(gateway, "guarded")
    request_count = len(gateway.upstream.requests)
    fields = {"items": [{**QUESTION, "content": "The forbidden word."}]}
    refused = await call_conversation(gateway, f"/{text}/items", "POST", fields)
    gateway.upstream.then(respond({**TALK, "metadata": {"to": EMAIL}}))
    outputs = await call_conversation(gateway, f"/{text}")

    assert (refused[0], refused[1]["error"]["code"]) == (400, "guardrail_blocked")
    assert len(gateway.upstream.requests) == request_count + 1
    assert (outputs[0], EMAIL in json.dumps(outputs[1])) == (200, False)


@pytest.mark.parametrize("is_page", [True, False])
async def test_output_guards_inspect_items(is_page: bool, gateway: StatefulProxy) -> None:
    text = await create_conversation(gateway, "guarded")
    item = {**USER_ITEM, "content": [{"type": "input_text", "text": f"Ask {EMAIL}."}]}
    path = "" if is_page else f"/{await item_of(gateway, text)}"
    gateway.upstream.answer_with(respond({**PAGE, "data": [item]} if is_page else item))

    status, body, _ = await call_conversation(gateway, f"/{text}/items{path}")

    assert (status, EMAIL in json.dumps(body)) == (200, False), body
    assert "Ask " in json.dumps(body)


@pytest.mark.parametrize("words", [1, 60_000], ids=["small", "large"])
async def test_listed_items_have_restored_values(
    words: int, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async def echo(request: ReceivedRequest, wire: Wire) -> None:
        [item] = request.json["items"]
        content = [{"type": "input_text", "text": item["content"]}]
        await respond({**PAGE, "data": [{**USER_ITEM, "content": content}]})(request, wire)

    guard = "{guard: pii, entities: [email], action: mask, restore: true}"
    policies = policy(upstream.url).replace("input: [", f"input: [{guard}, ")
    policies = policies.replace("    output: [{guard: pii, action: mask}]\n", "")
    text = f"Mail {EMAIL}. " + "word " * words
    async with stateful_proxy(tmp_path / "policies", upstream, policies) as context:
        value = await create_conversation(context, "guarded")
        upstream.then(echo)
        fields = {"items": [{**QUESTION, "content": text}]}
        status, body, _ = await call_conversation(context, f"/{value}/items", "POST", fields)

    assert status == 200, body
    assert EMAIL not in upstream.requests[-1].json["items"][0]["content"]
    assert body["data"][0]["content"][0]["text"] == text


async def test_retry_guard_blocks_stored_item(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    guard = "{guard: keywords, words: [hippo], action: retry}"
    policies = policy(upstream.url).replace("{guard: pii, action: mask}", guard)
    async with stateful_proxy(tmp_path / "policies", upstream, policies) as context:
        text = await create_conversation(context, "guarded")
        upstream.answer_with(respond(response(text_item("A hippo."))))
        status, body = await context.ask(model="watched", conversation=text)
        in_one = len(upstream.requests) - 1
        await context.ask(model="watched")

    assert (status, body["error"]["code"]) == (400, "guardrail_blocked")
    assert (in_one, len(upstream.requests) - 2) == (1, 2)


async def test_null_metadata_is_forwarded(gateway: StatefulProxy) -> None:
    text = await create_conversation(gateway, metadata=None)
    assert gateway.last.json == {"metadata": None}

    await call_conversation(gateway, f"/{text}", "POST", {"metadata": None, "items": None})

    assert gateway.last.json == {"metadata": None}


async def test_writes_are_not_repeated_after_a_lost_response(gateway: StatefulProxy) -> None:
    text = await create_conversation(gateway, "resilient")
    fields = {"items": [QUESTION]}
    gateway.upstream.then(cut_before_head())
    lost_count, _, _ = await call_conversation(gateway, f"/{text}/items", "POST", fields)
    lost_at = len(gateway.upstream.requests)
    gateway.upstream.then(respond({"error": {"message": "Later."}}, 503), respond(PAGE))
    later, _, _ = await call_conversation(gateway, f"/{text}/items", "POST", fields)

    assert (lost_count, lost_at) == (502, 2)
    assert (later, len(gateway.upstream.requests)) == (200, 4)


async def test_responses_of_a_conversation_are_not_cached(gateway: StatefulProxy) -> None:
    text = await create_conversation(gateway, "kept")
    gateway.upstream.answer_with(respond(response()))
    for _ in range(2):
        assert (await gateway.ask(conversation=text, model="keeper"))[0] == 200

    assert len(gateway.upstream.requests) == 3


async def test_written_items_have_ids_of_the_provider(gateway: StatefulProxy) -> None:
    text = await create_conversation(gateway)
    item = await item_of(gateway, text)
    gateway.upstream.answer_with(respond(PAGE))
    reference = {"type": "item_reference", "id": item}

    fields = {"items": [reference]}
    status, _, _ = await call_conversation(gateway, f"/{text}/items", "POST", fields)
    query = f"after={item}&limit=1&include[]=a.b&x=y"
    listed, _, _ = await call_conversation(gateway, f"/{text}/items?{query}")

    assert (status, listed) == (200, 200)
    assert gateway.upstream.requests[-2].json == {"items": [{**reference, "id": "msg_a1"}]}
    query = gateway.last.path.replace("%5B%5D", "[]").partition("?")[2]
    assert query == "after=msg_a1&limit=1&include[]=a.b"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"items": "x"}, "items"),
        ({"items": [{"type": 1}]}, "items.0.type"),
        ({"items": [{"type": "message"}]}, "items.0.role"),
        ({"metadata": []}, "metadata"),
        ({"items": [{"type": "shell_call", "environment": {"container_id": "c"}}]}, "items"),
        ({"items": [{"type": "item_reference", "id": "msg_1"}]}, "items.0.id"),
    ],
)
async def test_errors_use_ids_of_client(fields: Json, param: str, gateway: StatefulProxy) -> None:
    headers = {"x-headrace-deployment": "support-chat"}

    status, body, _ = await call_conversation(gateway, method="POST", body=fields, **headers)

    assert status in (400, 404), body
    assert body["error"]["param"].startswith(param), body
    assert gateway.upstream.requests == []


async def test_key_with_several_deployments_must_name_one(gateway: StatefulProxy) -> None:
    status, body, _ = await call_conversation(gateway, method="POST", body={})
    alone, _, _ = await call_conversation(gateway, method="POST", body={"other": 1}, key=OTHER_KEY)
    headers = {"x-headrace-deployment": "chatting"}
    chat, refused, _ = await call_conversation(gateway, "", "POST", {}, **headers)

    assert (status, body["error"]["param"]) == (400, "deployment")
    assert "guarded, kept, resilient, support-chat" in body["error"]["message"]
    assert "chatting" not in body["error"]["message"]
    assert alone == 200
    assert gateway.last.json == {}
    assert (chat, refused["error"]["param"]) == (400, "deployment")


async def test_conversation_calls_are_explained_and_counted(gateway: StatefulProxy) -> None:
    value = await create_conversation(gateway)
    _, _, headers = await call_conversation(gateway, f"/{value}")

    text = await gateway.explanation(headers["x-request-id"])
    lines = (await gateway.proxy.metrics()).splitlines()

    assert "openai" in text.partition("pinned")[2]
    counts = [line for line in lines if line.startswith("headrace_requests_total{")]
    assert any('endpoint="conversations"' in line and line.endswith(" 2.0") for line in counts)
