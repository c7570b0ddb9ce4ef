"""Signed thoughts that a client sends back: guards that inspect thoughts mask or block them, guards
without the kind ``reasoning`` let them pass as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from proxy.policy.schema.guards import Kind
from tests.dialects.test_anthropic import ASKED, CALLED, HEADERS
from tests.dialects.test_responses import BEARER
from tests.doubles import Json, ScriptedUpstream, answer, message, response, text_item
from tests.guardrails.test_run import EMAIL, guarded

THINKING = {"type": "thinking", "thinking": f"Ask {EMAIL}.", "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": f"Ask {EMAIL}."}],
    "encrypted_content": "c2VhbGVk",
}
RESULT = {"type": "tool_result", "tool_use_id": CALLED["id"], "content": "done"}
MESSAGES: Json = {
    **ASKED,
    "messages": [
        {"role": "user", "content": "Write."},
        {"role": "assistant", "content": [THINKING, REDACTED, CALLED]},
        {"role": "user", "content": [RESULT]},
    ],
}
RESPONSES: Json = {
    "model": "gpt-4o-mini",
    "input": [{"role": "user", "content": "Write."}, REASONING, {"role": "user", "content": "Go."}],
}
APIS: dict[str, tuple[str, str, Json, Json]] = {
    "messages": ("/v1/messages", "via-anthropic", MESSAGES, message()),
    "responses": ("/v1/responses", "support-chat", RESPONSES, response(text_item("Fine."))),
}
WITHOUT_THOUGHTS = f"fields: [{', '.join(kind for kind in get_args(Kind) if kind != 'reasoning')}]"
MASKED: dict[str, list[Any]] = {
    "messages": [REDACTED, CALLED],
    "responses": [{**REASONING, "summary": [{"type": "summary_text", "text": "Ask [EMAIL]."}]}],
}
UNCHANGED: dict[str, list[Any]] = {
    "messages": [THINKING, REDACTED, CALLED],
    "responses": [REASONING],
}


def thoughts(api: str, body: Json) -> list[Any]:
    return body["messages"][1]["content"] if api == "messages" else [body["input"][1]]


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        ("action: mask", MASKED),
        ("action: block", None),
        (f"action: mask, {WITHOUT_THOUGHTS}", UNCHANGED),
        (f"action: block, {WITHOUT_THOUGHTS}", UNCHANGED),
    ],
)
@pytest.mark.parametrize("api", APIS)
async def test_returned_thoughts_are_inspected_unless_their_kind_is_left_out(
    api: str,
    guard: str,
    expected: dict[str, list[Any]] | None,
    tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:
    path, target, body, reply = APIS[api]
    upstream.answer_with(answer(reply))
    rules = f"input: [{{guard: pii, entities: [email], {guard}}}]"
    headers = {**(HEADERS if api == "messages" else BEARER), "x-headrace-deployment": target}
    async with (
        guarded(tmp_path, upstream, rules) as (_, client),
        client.post(path, headers=headers, json=body) as answered,
    ):
        raw = await answered.read()

    if expected is None:
        assert (answered.status, upstream.requests) == (400, []), raw
    else:
        [asked] = upstream.requests
        assert thoughts(api, asked.json) == expected[api], json.dumps(asked.json)
