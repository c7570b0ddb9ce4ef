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
SAID = {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "tool_calls": [CALL]}


def thinking(*, whole: bool) -> Json | list[Json]:
    if whole:
        made = chat()
        made["choices"][0] |= {"message": SAID, "finish_reason": "tool_calls"}
        return made
    events = chat_events("So.")
    events[0]["choices"][0]["delta"] |= {"reasoning_content": "Hm."}
    events[1]["choices"][0]["delta"] |= {"tool_calls": [{"index": 0, **CALL}]}
    return events


async def ask(proxy: Proxy, model: str, **body: object) -> tuple[int, str, Json]:
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(base_url=proxy.url) as session,
        session.post("/v1/responses", headers=headers, json={"model": model, **body}) as got,
    ):
        raw = await got.read()
        warning = got.headers.get("x-headrace-warning", "")
    if body.get("stream") and got.status == 200:
        return got.status, warning, {"events": [data for _, data in events_of(raw)]}
    return got.status, warning, json.loads(raw)


@pytest.mark.parametrize("secrets", [(SECRET,), ()], ids=["sealed", "bare"])
@for_each("whole", [True, False])
async def test_references_to_what_a_chat_said_are_dropped(
    whole: bool, secrets: tuple[str, ...], upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    made = thinking(whole=whole)
    upstream.answer_with(answer(made) if isinstance(made, dict) else stream(made))
    async with house(tmp_path / str(whole), upstream, id_secrets=secrets) as there:
        _, _, first = await ask(there.proxy, "chatter", input="Hi.", stream=not whole)
        output = first["output"] if whole else first["events"][-1]["response"]["output"]
        upstream.answer_with(answer(chat()))
        references = [{"type": "item_reference", "id": item["id"]} for item in output]
        called = [item for item in output if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": "c1", "output": "x"}
        question = {"role": "user", "content": "Hi."}
        given = [question, *references[:-1], *called, result]
        status, warning, second = await ask(there.proxy, "chatter", input=given)

    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    assert (status, warning) == (200, "item_reference dropped"), second
    roles = [message["role"] for message in upstream.requests[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool"]


async def test_a_target_of_responses_gets_no_such_reference(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(answer(chat("So.", reasoning_content="Hm.")))
    async with house(tmp_path / "one", upstream) as there:
        _, _, first = await ask(there.proxy, "chatter", input="Hi.")
        upstream.answer_with(answer(response()))
        references = [{"id": item["id"]} for item in first["output"]]
        given = [*references, {"role": "user", "content": "Hi."}]
        status, warning, _ = await ask(there.proxy, "gpt-4o-mini", input=given)

    assert (status, warning) == (200, "item_reference dropped")
    assert upstream.requests[-1].json["input"] == [{"role": "user", "content": "Hi."}]
