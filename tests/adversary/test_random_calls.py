"""Random and mutated requests and responses keep every guarantee of the proxy."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from hypothesis import Phase
from hypothesis import strategies as st

from proxy.dialects import DIALECTS, read_call
from proxy.dialects.requests.upstream_request import build_request
from proxy.errors import InvalidField
from proxy.ledger.audit import audit
from proxy.settings import LedgerLocation
from proxy.types import Endpoint, RequestHead, Target, Upstream
from proxy.types.providers import PROVIDERS, Provider
from tests.adversary.checked_proxy import checked_proxy
from tests.adversary.examples import check_examples
from tests.adversary.fields import ROUTES, TEXTS
from tests.adversary.grammar import LEAVES, requests
from tests.adversary.invalid_values import places
from tests.adversary.test_invalid_values import PARTS
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.dialects.vendors.test_anthropic import THOUGHT, TOOL_USE
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    chat,
    legacy,
    message,
    scripted_upstream,
    stream,
)
from tests.for_each import for_each


async def test_no_request_breaks_a_guarantee(tmp_path: Path, examples: int) -> None:
    async with checked_proxy(tmp_path) as running:
        await check_examples(requests(), running.send, examples)

    assert running.statuses.get(200, 0) >= examples / 20, running.statuses
    assert running.statuses.get(400, 0) >= examples / 20, running.statuses


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
    {"choices": [{"index": 0, "text": "a", "logprobs": LISTS, "finish_reason": "stop"}],
        "error": {"message": "m", "code": 5, "status": 5}, "data": [{"embedding": [0.1]}]},
    message(THOUGHT, TOOL_USE),
    {"type": "message_start", "message": message()},
    {"type": "content_block_start", "index": 0, "content_block": TOOL_USE},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
)  # fmt: skip
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


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(SHAPES)))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([*places(document)] or [("choices",)]))
        target: Any = document
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = draw(JSON)
    return document


Drawn = tuple[str, str, bool, bool, list[dict[str, Any]]]


async def check_answer(proxy: Proxy, upstream: ScriptedUpstream, drawn: Drawn) -> None:
    route, model, streams, as_events, values = drawn
    upstream.answer_with(stream(values) if as_events else answer(values[0]))
    path, headers, text = CLIENTS[route]
    requests = [model, "scale-model"] if route == "multimodel" else model
    body: dict[str, Any] = {"model": requests, text: TEXTS[text], "stream": streams}
    if route == "messages":
        body["max_tokens"] = 64
    if route.endswith("embeddings") or route == "multimodel":
        del body["stream"]
    with suppress(aiohttp.ClientPayloadError):  # some dialects can only abort a stream
        reply = await proxy.send(path, body, {**headers, "cache-control": "no-cache"})
        assert reply.status != 500, (drawn, reply.raw)
    [record] = await proxy.sink.wait()
    proxy.sink.forget()
    assert not record.is_internal_error, (drawn, record.error)


async def test_no_response_is_an_internal_error(tmp_path: Path, examples: int) -> None:
    ledger = tmp_path / "ledger.db"
    drawn = st.tuples(
        st.sampled_from(sorted(CLIENTS)),
        st.sampled_from(MODELS),
        st.booleans(),
        st.booleans(),
        st.lists(answers(), min_size=1, max_size=3),
    )
    async with (
        scripted_upstream() as upstream,
        running_proxy(
            tmp_path / "policies",
            policies_for(upstream.url) + GUARDS,
            ledger=LedgerLocation("sqlite", ledger),
        ) as proxy,
    ):
        check = partial(check_answer, proxy, upstream)
        await check_examples(drawn, check, examples, Phase.generate)
    assert audit(ledger).violations == ()


ODD: list[Any] = [None, True, 2**70, "", "\ud800", "c_signed_QUFB", [], [None], ["x"], {}]
ODD += [{"type": ["x"], "id": {}}, [{"type": "x"}]]
USER: Json = {"role": "user", "content": "Where?"}
FUNCTION: Json = {"name": "f", "arguments": "{}"}
REQUEST_CALL: Json = {
    "id": "call_1",
    "type": "function",
    "function": FUNCTION,
    "extra_content": {"google": {"thought_signature": "s"}},
}
PICTURE: Json = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}
FIELDS: Json = {
    "role": "assistant",
    "content": "x",
    "reasoning_content": "t",
    "tool_calls": [REQUEST_CALL],
}
USED: Json = {"type": "tool_use", "id": "c_signed_QUFB", "name": "f", "input": {}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "c_signed_QUFB", "content": "r"}
THINKING_BLOCK: Json = {"type": "thinking", "thinking": "t", "signature": "s"}
ITEMS: list[Json] = [
    USER,
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
    {**FUNCTION, "type": "function_call", "call_id": "c_signed_QUFB"},
    {"type": "function_call_output", "call_id": "c_signed_QUFB", "output": "x"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
]
TOOL: Json = {"type": "function", "function": {"name": "f", "parameters": {}}}
REQUESTS: dict[str, tuple[str, Endpoint, Json]] = {
    "chat": (
        *("openai", "chat"),
        {
            "messages": [
                {"role": "developer", "content": "d"},
                {"role": "user", "content": [{"type": "text", "text": "hi"}, PICTURE]},
                FIELDS,
                {"role": "tool", "tool_call_id": "call_1", "content": "r"},
            ],
            **{"tools": [TOOL], "tool_choice": "auto", "reasoning_effort": "low", "n": 1},
            **{"seed": 1, "random_seed": 2, "max_tokens": 3, "max_completion_tokens": 4},
        },
    ),
    "messages": (
        *("anthropic", "chat"),
        {
            "messages": [USER, {"role": "assistant", "content": [THINKING_BLOCK, USED]},
                {"role": "user", "content": [RESULT]}],
            **{"max_tokens": 2048, "system": [{"type": "text", "text": "s"}], "random_seed": 1},
            **{"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "auto"}},
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        },
    ),
    "responses": (
        *("openai", "responses"),
        {
            **{"input": ITEMS, "tools": [{**TOOL["function"], "type": "function"}]},
            **{"text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"}},
            **{"max_output_tokens": 5, "random_seed": 3},
        },
    ),
}  # fmt: skip


def distinct_rows() -> Iterator[Provider]:
    observed = set[Any]()
    for row in PROVIDERS.values():
        traits = (row.renamed, row.thoughts, row.signs_calls, row.has_short_ids, row.is_plain)
        if (row.dialect, traits) not in observed:
            observed.add((row.dialect, traits))
            yield row


def mutated(value: Any) -> Iterator[Any]:
    """Yield copies of a value in which one member or item, at any depth, is odd."""
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for place, inner in members:
        replaced = [*ODD, *(mutated(inner) if isinstance(inner, dict | list) else ())]
        for other_value in replaced:
            document = copy.copy(value)
            document[place] = other_value
            yield document


@for_each("row", [*distinct_rows()])
@for_each("form", REQUESTS)
def test_mutated_request_is_sent_or_refused(form: str, row: Provider) -> None:
    dialect, endpoint, body = REQUESTS[form]
    spoken = row.dialect if row.dialect in DIALECTS else "openai"
    upstream = Upstream("own", spoken, "https://example.com/v1", traits=row)
    target, head = Target(upstream, "m"), RequestHead(dialect, endpoint, "/", "r")
    sent_value, refused = 0, list[str | None]()
    for document in (body, *mutated(body)):
        try:
            call = read_call(head, {"model": "m", **document}, 10)
            build_request(call, target)
        except InvalidField as error:
            refused.append(error.param)
        else:
            sent_value += 1
    assert sent_value
    assert all(refused)
