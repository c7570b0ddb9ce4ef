"""References to items that no provider stores: SDKs send them for what a chat target has said."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import KEY, Proxy
from tests.dialects.test_leaning import SECRET, house
from tests.dialects.vendors.test_anthropic import events_of
from tests.doubles import Json, ScriptedUpstream, answer, chat, chat_events, response, stream
from tests.for_each import for_each

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


async def ask(proxy: Proxy, model: str, **body: object) -> tuple[int, str, Json]:
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(base_url=proxy.url) as session,
        session.post(
            "/v1/responses", headers=headers, json={"model": model, **body}
        ) as response_item,
    ):
        raw = await response_item.read()
        warning = response_item.headers.get("x-headrace-warning", "")
    if body.get("stream") and response_item.status == 200:
        return response_item.status, warning, {"events": [data for _, data in events_of(raw)]}
    return response_item.status, warning, json.loads(raw)


@pytest.mark.parametrize("secrets", [(SECRET,), ()], ids=["sealed", "bare"])
@for_each("is_whole", [True, False])
async def test_references_to_what_a_chat_said_are_dropped(
    is_whole: bool, secrets: tuple[str, ...], upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    document = thinking(is_whole=is_whole)
    upstream.answer_with(answer(document) if isinstance(document, dict) else stream(document))
    async with house(tmp_path / str(is_whole), upstream, id_secrets=secrets) as context:
        _, _, first_document = await ask(context.proxy, "chatter", input="Hi.", stream=not is_whole)
        output = (
            first_document["output"]
            if is_whole
            else first_document["events"][-1]["response"]["output"]
        )
        upstream.answer_with(answer(chat()))
        references = [{"type": "item_reference", "id": item["id"]} for item in output]
        calls = [item for item in output if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": "c1", "output": "x"}
        question = {"role": "user", "content": "Hi."}
        values = [question, *references[:-1], *calls, result]
        status, warning, second = await ask(context.proxy, "chatter", input=values)

    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    assert (status, warning) == (200, "item_reference dropped"), second
    roles = [message["role"] for message in upstream.requests[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool"]


async def test_a_target_of_responses_gets_no_such_reference(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(answer(chat("So.", reasoning_content="Hm.")))
    async with house(tmp_path / "one", upstream) as context:
        _, _, first_document = await ask(context.proxy, "chatter", input="Hi.")
        upstream.answer_with(answer(response()))
        references = [{"id": item["id"]} for item in first_document["output"]]
        values = [*references, {"role": "user", "content": "Hi."}]
        status, warning, _ = await ask(context.proxy, "gpt-4o-mini", input=values)

    assert (status, warning) == (200, "item_reference dropped")
    assert upstream.requests[-1].json["input"] == [{"role": "user", "content": "Hi."}]
