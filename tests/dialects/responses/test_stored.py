"""Calls about stored responses, over sockets: guards, limits, other keys, and query parameters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.dialects.responses.stored import read_conversation_call
from proxy.errors import InvalidField
from proxy.types import RequestHead
from tests.conftest import KEY
from tests.dialects.test_stored_state import SECRET, StatefulProxy, policy, stateful_proxy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    chat,
    chat_events,
    respond,
    response,
    stream,
    text_item,
)
from tests.for_each import for_each

ITEM: Json = {"id": "msg_0", "type": "message", "role": "user"}
ITEM["content"] = [{"type": "input_text", "text": "I am ann@example.com."}]
ITEMS: Json = {"object": "list", "data": [ITEM], "first_id": "msg_0", "last_id": "msg_0"}
ITEMS["has_more"] = False


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[StatefulProxy]:
    upstream.answer_with(respond(response()))
    limits = "    limits: [{name: few, requests: 3 per hour, per: key}]\n"
    policies = policy(upstream.url).replace("  guarding:\n", f"  guarding:\n{limits}")
    async with stateful_proxy(tmp_path / "policies", upstream, policies) as running:
        yield running


async def call_response(
    context: StatefulProxy, text: str, method: str = "GET", suffix: str = "", key: str = KEY
) -> tuple[int, Json, dict[str, str]]:
    return await context.send(f"/v1/responses/{text}{suffix}", method, key=key)


def items_of(document: Json) -> Json:
    """Return the members of a document that contain item ids."""
    names = ("output", "data", "first_id", "last_id")
    return {name: document[name] for name in names if name in document}


async def test_read_is_free_and_counts_as_a_call(gateway: StatefulProxy) -> None:
    text = await gateway.id_of(model="guarded")

    calls = [await call_response(gateway, text) for _ in range(3)]

    assert [status for status, *_ in calls] == [200, 200, 429]
    assert gateway.last.headers["authorization"] == "Bearer sk-upstream-secret"
    [_, record, *_] = await gateway.proxy.sink.wait(4)
    names = record.outcome, record.head.endpoint, record.head.method
    assert names == ("success", "stored", "GET")
    assert (record.billing.cost, record.billing.tokens.total, record.cache) == (0, 0, "bypass")
    assert record.plan.deployment == "guarded"


async def test_output_guards_inspect_stored_responses(gateway: StatefulProxy) -> None:
    text = await gateway.id_of(model="guarded")
    stored = response(text_item("Ask bob@example.com."), instructions="Be ann@example.com.")
    gateway.upstream.then(respond(stored), respond(ITEMS))

    outputs = await call_response(gateway, text)
    items = await call_response(gateway, text, suffix="/input_items")

    for status, body, _ in (outputs, items):
        assert status == 200
        assert "@example.com" not in json.dumps(body)
    _, body, _ = outputs
    assert (body["id"], body["object"], body["usage"]) == (text, "response", stored["usage"])
    assert body.keys() == stored.keys()
    assert items[1] == {**ITEMS, **items_of(items[1])}


async def test_retry_guard_blocks_response(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(respond(response()))
    guard = "{guard: keywords, words: [hippo], action: retry}"
    policies = policy(upstream.url).replace("{guard: pii, action: mask}", guard)
    async with stateful_proxy(tmp_path / "policies", upstream, policies) as context:
        text = await context.id_of(model="guarded")
        upstream.answer_with(respond(response(text_item("A hippo."), status="cancelled")))

        status, body, _ = await call_response(context, text, "POST", "/cancel")

    assert (status, body["error"]["code"]) == (400, "guardrail_blocked")
    assert len(upstream.requests) == 2


async def test_known_query_parameters_pass(gateway: StatefulProxy) -> None:
    text = await gateway.id_of()
    gateway.upstream.answer_with(respond(ITEMS))
    query = "limit=2&order=asc&after=msg_1&include[]=a.b&include=c&token=x&stream=false"

    status, _, _ = await call_response(gateway, text, suffix=f"/input_items?{query}")

    assert status == 200
    path = gateway.last.path.replace("%5B%5D", "[]")
    assert path.partition("?")[2] == "limit=2&order=asc&after=msg_1&include[]=a.b&include[]=c"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        *((f"limit={odd}", "limit") for odd in ("0", "101", "x", "1&limit=2")),
        *((f"after={odd}", "after") for odd in ("a%20b", "a" * 300)),
        *(("stream=true", "stream"), ("starting_after=3", "starting_after"), ("order=up", "order")),
        *(("include=%0d%0ax", "include"), ("&".join(["include[]=a"] * 17), "include")),
    ],
)
async def test_wrong_query_is_named(query: str, name: str, gateway: StatefulProxy) -> None:
    text = await gateway.id_of()

    status, body, _ = await call_response(gateway, text, suffix=f"?{query}")

    assert (status, body["error"]["param"]) == (400, name), body
    assert len(gateway.upstream.requests) == 1


async def test_failed_response_is_returned(gateway: StatefulProxy) -> None:
    text = await gateway.id_of()
    failed = response(status="failed", error={"code": "server_error", "message": "Sorry."})
    gateway.upstream.answer_with(respond(failed))

    status, body, _ = await call_response(gateway, text)

    assert (status, body["status"], body["error"]["code"]) == (200, "failed", "server_error")


async def test_head_request_has_no_body(gateway: StatefulProxy) -> None:
    text = await gateway.id_of()

    status, body, headers = await call_response(gateway, text, "HEAD")

    assert (status, body) == (200, {})
    assert int(headers["content-length"]) > 100
    assert gateway.last.method == "GET"


async def test_failed_read_is_retried_at_the_same_target_only(gateway: StatefulProxy) -> None:
    text = await gateway.id_of(model="resilient")
    request_count = len(gateway.upstream.requests)
    gateway.upstream.answer_with(respond({"error": {"message": "Later."}}, 503))

    status, _, _ = await call_response(gateway, text, "DELETE")

    assert status == 503
    paths = [(item.method, item.path) for item in gateway.upstream.requests[request_count:]]
    assert paths == [("DELETE", "/v1/responses/resp_1")] * 2


async def test_stored_responses_are_not_cached(gateway: StatefulProxy) -> None:
    value = await gateway.id_of(model="kept")

    for text in ("one", "two"):
        gateway.upstream.answer_with(respond(response(text_item(text))))
        _, body, _ = await call_response(gateway, value)
        assert body["output"][0]["content"][0]["text"] == text


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FIELDS = {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "tool_calls": [CALL]}


def thinking(*, is_whole: bool) -> Json | list[Json]:
    if is_whole:
        document = chat()
        document["choices"][0] |= {"message": FIELDS, "finish_reason": "tool_calls"}
        return document
    events = chat_events("So.")
    events[0]["choices"][0]["delta"] |= {"reasoning_content": "Hm."}
    events[1]["choices"][0]["delta"] |= {"tool_calls": [{"index": 0, **CALL}]}
    return events


@pytest.mark.parametrize("secrets", [(SECRET,), ()], ids=["sealed", "bare"])
@for_each("is_whole", [True, False])
async def test_references_to_chat_output_are_dropped(
    is_whole: bool, secrets: tuple[str, ...], upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    document = thinking(is_whole=is_whole)
    upstream.answer_with(respond(document) if isinstance(document, dict) else stream(document))
    async with stateful_proxy(tmp_path / str(is_whole), upstream, id_secrets=secrets) as context:
        _, first = await context.ask(model="chatter", stream=not is_whole)
        output = (first if is_whole else first["events"][-1]["response"])["output"]
        upstream.answer_with(respond(chat()))
        references = [{"type": "item_reference", "id": item["id"]} for item in output]
        calls = [item for item in output if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": "c1", "output": "x"}
        question = {"role": "user", "content": "Hi."}
        body = {"model": "chatter", "input": [question, *references[:-1], *calls, result]}
        status, second, headers = await context.send("/v1/responses", "POST", body)

    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    assert (status, headers["x-headrace-warning"]) == (200, "item_reference dropped"), second
    roles = [message["role"] for message in upstream.requests[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool"]


QUESTION: Json = {"type": "message", "role": "user", "content": "Where?"}


def head(method: str, end: str) -> RequestHead:
    return RequestHead("openai", "conversations", f"/v1/conversations{end}", "r", method=method)


def test_body_must_match_its_path() -> None:
    def took(path: str) -> tuple[Json, tuple[str, ...]]:
        fields = {"items": [QUESTION], "metadata": {"a": "b"}, "model": "m"}
        call = read_conversation_call(head("POST", path), fields)
        return call.body, call.warnings

    items, metadata = {"input": [QUESTION]}, {"metadata": {"a": "b"}}
    assert took("") == (items | metadata, ("model dropped",))
    assert took("/{id}") == (metadata, ("items dropped", "model dropped"))
    assert took("/{id}/items") == (items, ("metadata dropped", "model dropped"))
    with pytest.raises(InvalidField, match=r"items\.0\.type"):
        read_conversation_call(head("POST", ""), {"items": [{"type": []}]})
