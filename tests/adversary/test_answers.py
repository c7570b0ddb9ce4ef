"""No JSON in any place of an upstream's response makes the proxy fail."""

from __future__ import annotations

import asyncio
import copy
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import ClientSession
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from proxy.ledger.audit import audit
from proxy.settings import LedgerAt
from tests.adversary.grammar import LEAVES
from tests.adversary.test_messages_answers import PARTS
from tests.adversary.test_what_a_request_may_say import ROUTES, TEXTS
from tests.conftest import KEY, Proxy, running_proxy, world
from tests.dialects.vendors.test_anthropic import CALLED, THOUGHT
from tests.doubles import ScriptedUpstream, answer, chat, legacy, message, scripted_upstream, stream

GUARDS = """
policies:
  default:
    match: all
    input: [{guard: pii, entities: [email], action: mask, restore: true}]
    output:
      - {guard: keywords, words: [zqforbidden], action: block}
      - {guard: secrets, action: mask}
    cache: {ttl: 1h}
"""
MODELS = (
    "support-chat", "search-answers", "legacy-only", "portkey-model", "fireworks-model",
    "scale-model", "multimodel-model", "enkrypt-model", "anthropic-model",
)  # fmt: skip
CLIENTS = {**ROUTES, "messages": ("/v1/messages", {"x-api-key": KEY}, "messages")}
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LISTS = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0}]}
SPOKEN = {"role": "assistant", "content": "Hydropolis", "tool_calls": [CALL]}
ITEM = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": [{"token": "a"}]}
SHAPES: tuple[dict[str, Any], ...] = (
    {**chat("Hydropolis"), "choices": [{"index": 0, "message": SPOKEN, "finish_reason": "stop"}]},
    {**legacy("Hydropolis"), "model": "m"},
    {"choices": [{"index": 0, "message": {"content": PARTS}, "finish_reason": "stop"}]},
    {"choices": [{"index": 0, "delta": {"content": PARTS}, "finish_reason": "stop"}]},
    {
        "id": "x",
        "choices": [
            {"index": 0, "delta": SPOKEN, "logprobs": {"content": [ITEM]}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    },
    {
        "choices": [{"index": 0, "text": "a", "logprobs": LISTS, "finish_reason": "stop"}],
        "error": {"message": "m", "code": 5, "status": 5},
        "data": [{"embedding": [0.1]}],
    },
    message(THOUGHT, CALLED),
    {"type": "message_start", "message": message()},
    {"type": "content_block_start", "index": 0, "content_block": CALLED},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("content", "text", "index", "function", "token", "a")),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members: Any = value.items() if isinstance(value, dict) else ()
    members = enumerate(value) if isinstance(value, list) else members
    return [
        p
        for position, inner in members
        for p in ((*path, position), *places(inner, (*path, position)))
    ]


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(SHAPES)))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(places(document) or [("choices",)]))
        target: Any = document
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = draw(JSON)
    return document


async def tried(
    proxy: Proxy,
    client: ClientSession,
    upstream: ScriptedUpstream,
    drawn: tuple[str, str, bool, bool, list[dict[str, Any]]],
) -> None:
    random.seed()  # what draws examples seeds it anew for each, and ids are drawn by it
    route, model, streams, as_events, values = drawn
    upstream.answer_with(stream(values) if as_events else answer(values[0]))
    path, headers, text = CLIENTS[route]
    requests = [model, "scale-model"] if route == "multimodel" else model
    body: dict[str, Any] = {"model": requests, text: TEXTS[text], "stream": streams}
    if route == "messages":
        body["max_tokens"] = 64
    if route.endswith("embeddings") or route == "multimodel":
        body = {"model": requests, text: TEXTS[text]}
    headers = {**headers, "cache-control": "no-cache"}
    async with client.post(path, headers=headers, json=body) as response:
        status, event = response.status, b""
        with suppress(aiohttp.ClientPayloadError):  # some clients are told of an error by a cut
            event = await response.read()
    [record] = await proxy.sink.wait()
    proxy.sink.forget()
    assert status != 500, (drawn, event)
    assert not record.is_internal_error, (drawn, record.is_internal_error, event)


async def test_no_answer_of_an_upstream_is_a_fault_of_ours(tmp_path: Path, examples: int) -> None:
    loop = asyncio.get_running_loop()
    ledger = tmp_path / "ledger.db"
    async with (
        scripted_upstream() as upstream,
        running_proxy(
            tmp_path / "policies", world(upstream.url) + GUARDS, ledger=LedgerAt("sqlite", ledger)
        ) as proxy,
    ):

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        )
        @given(
            st.tuples(
                st.sampled_from(sorted(CLIENTS)),
                st.sampled_from(MODELS),
                st.booleans(),
                st.booleans(),
                st.lists(answers(), min_size=1, max_size=3),
            )
        )
        def attack(drawn: tuple[str, str, bool, bool, list[dict[str, Any]]]) -> None:
            work = tried(proxy, proxy.client, upstream, drawn)
            asyncio.run_coroutine_threadsafe(work, loop).result()

        await loop.run_in_executor(None, attack)
    assert audit(ledger).violations == ()
