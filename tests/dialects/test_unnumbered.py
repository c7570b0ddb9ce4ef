"""A server of Responses that leaves out the numbers of its events, as llama.cpp's does, is heard as
one that says them: whole, guarded, kept, and by clients of another form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.conftest import running_proxy, world
from tests.dialects.responses.test_numbering import NUMBERS, RICH, STREAM, without
from tests.dialects.test_anthropic import events_of
from tests.dialects.test_responses import BEARER, accumulated, streamed
from tests.doubles import Json, ScriptedUpstream, item_events, response, response_events, stream
from tests.doubles import text_item as text
from tests.guardrails.test_run import EMAIL, PII

SPLIT = EMAIL[:5], EMAIL[5:]
SECRET = json.dumps({"to": EMAIL})
CALLS = [
    {"id": f"fc_{at}", "type": "function_call", "status": "completed", "call_id": f"call_{at}"}
    | {"name": "send", "arguments": SECRET}
    for at in range(2)
]
GUARDED = response_events(
    item_events(0, text(f"Ask {EMAIL}."), f"Ask {SPLIT[0]}", f"{SPLIT[1]}."),
    item_events(1, CALLS[0], SECRET[:12], SECRET[12:]),
    item_events(2, CALLS[1], SECRET[:12], SECRET[12:]),
    whole=response(text(f"Ask {EMAIL}."), *CALLS),
)
QUESTION = [{"role": "user", "content": "p"}]
BY: dict[str, tuple[str, Json]] = {
    "responses": ("/v1/responses", {"input": QUESTION}),
    "chat": ("/v1/chat/completions", {"messages": QUESTION}),
    "messages": ("/v1/messages", {"messages": QUESTION, "max_tokens": 9}),
}
POLICIES = {
    "plain": "cache: {off: true}",
    "guarded": f"output: [{PII}]",
    "kept": "cache: {ttl: 60s, tool_calls: true}",
    "guarded and kept": f"output: [{PII}], cache: {{ttl: 60s, tool_calls: true}}",
}
LEFT_OUT: dict[str, Callable[[int, Json], Json]] = {
    "all": lambda _, event: without(event, *NUMBERS),
    "that of the item": lambda _, event: without(event, "output_index"),
    "those of some": lambda at, event: without(event, *NUMBERS) if at % 3 else event,
    "those of texts": lambda _, event: without(event, *NUMBERS) if "delta" in event else event,
}


@pytest.mark.parametrize("left_out", LEFT_OUT)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("by", BY)
async def test_an_answer_without_numbers_is_as_one_with_them(
    by: str, policy: str, left_out: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    policies = f"{world(upstream.url)}\npolicies: {{default: {{match: all, {POLICIES[policy]}}}}}\n"
    path, body = BY[by]
    heard: list[bytes] = []
    times = 2 if "kept" in policy else 1
    async with (
        running_proxy(tmp_path / "policies", policies) as proxy,
        ClientSession(base_url=proxy.url) as client,
    ):
        for events in (GUARDED, [*map(LEFT_OUT[left_out], range(99), GUARDED)]):
            upstream.answer_with(stream(events, done=False))
            sent = {**body, "model": "m", "stream": True, "temperature": len(heard) / 4}
            headers = BEARER | {"x-headrace-deployment": "responses-only"}
            for _ in range(times):
                async with client.post(path, headers=headers, json=sent) as answered:
                    heard.append(await answered.read())
                    assert answered.status == 200, heard

    assert len(upstream.requests) == 2
    said = [meaning(by, raw) for raw in heard]
    assert said[:times] == said[times:]
    assert (SPLIT[1] in "".join(said)) == ("guarded" not in policy)
    if by == "responses":
        for raw in heard:
            accumulated(raw)


def meaning(by: str, raw: bytes) -> str:
    """Return what a stream says, without what is of one call alone."""
    if by == "chat":
        assert raw.endswith(b"data: [DONE]\n\n")
        lines = raw.decode().splitlines()
        found = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    else:
        found = streamed(raw) if by == "responses" else [data for _, data in events_of(raw)]
    written = [without(each, "created", "id", "obfuscation") for each in found]
    return re.sub(r'"id": "(chatcmpl|msg|resp)[-_][^"]*"', "", json.dumps(written, sort_keys=True))


@pytest.mark.parametrize("events", [STREAM, RICH], ids=["calls", "parts"])
async def test_a_client_of_responses_gets_each_event_with_its_numbers(
    events: list[Json], client: ClientSession, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream([without(each, *NUMBERS) for each in events], done=False))
    body = {"model": "gpt-4o-mini", "input": "p", "stream": True}

    async with client.post("/v1/responses", headers=BEARER, json=body) as answered:
        raw = await answered.read()

    assert [data for _, data in events_of(raw)] == events
