"""Searches for random requests and responses that break any guarantee of the proxy.

`checked_proxy` lists the guarantees; `grammar` draws requests in every dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from hypothesis import Phase
from hypothesis import strategies as st

from proxy.ledger.audit import audit
from proxy.settings import LedgerLocation
from tests.adversary.checked_proxy import checked_proxy
from tests.adversary.examples import check_examples
from tests.adversary.hostile_requests import LEAVES, hostile_requests
from tests.adversary.invalid_values import list_paths, replace_at
from tests.adversary.request_calls import ROUTES, TEXTS
from tests.adversary.test_invalid_values import DOCUMENTS as INVALID_VALUE_DOCUMENTS
from tests.adversary.test_invalid_values import STREAMS
from tests.adversary.word_guard import choice, chunk
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.dialects.vendors.test_anthropic import THOUGHT, TOOL_USE
from tests.doubles import (
    Json,
    ScriptedUpstream,
    legacy_completion,
    message,
    respond,
    scripted_upstream,
    stream,
    usage,
)


async def test_no_request_breaks_a_guarantee(tmp_path: Path, examples: int) -> None:
    async with checked_proxy(tmp_path) as running:
        await check_examples(hostile_requests(), running.send, examples)

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
LOGPROBS = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": [{"token": "a"}]}
LEGACY_LOGPROBS = {"tokens": ["a"], "token_logprobs": [-1.0], "top_logprobs": [{"a": -1.0}]}
ERROR = {"message": "m", "code": 5, "status": 5}
DOCUMENTS: Sequence[Json] = (
    *(*INVALID_VALUE_DOCUMENTS["chat"], *(chunk for [chunk] in STREAMS["chat"])),
    {**legacy_completion("Hydropolis"), "model": "m"},
    chunk({**choice({"content": "a"}, "stop"), "logprobs": {"content": [LOGPROBS]}}, usage=usage()),
    {
        **chunk({"index": 0, "text": "a", "logprobs": LEGACY_LOGPROBS, "finish_reason": "stop"}),
        **{"error": ERROR, "data": [{"embedding": [0.1]}]},
    },
    message(THOUGHT, TOOL_USE),
    {"type": "message_start", "message": message()},
    {"type": "content_block_start", "index": 0, "content_block": TOOL_USE},
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


@st.composite
def documents(draw: st.DrawFn) -> Json:
    document = draw(st.sampled_from(DOCUMENTS))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([*list_paths(document)] or [("choices",)]))
        document = replace_at(document, path, draw(JSON))
    return document


Drawn = tuple[str, str, bool, bool, list[Json]]
"""A route, a model, whether client and upstream stream, and the documents of the upstream."""


async def check_response(proxy: Proxy, upstream: ScriptedUpstream, drawn: Drawn) -> None:
    route, model, client_streams, upstream_streams, responses = drawn
    upstream.answer_with(stream(responses) if upstream_streams else respond(responses[0]))
    path, headers, text = CLIENTS[route]
    models = [model, "scale-model"] if route == "multimodel" else model
    body: Json = {"model": models, text: TEXTS[text], "max_tokens": 64, "stream": client_streams}
    if route == "multimodel" or text == "input":
        del body["stream"]
    reply = await proxy.send(path, body, {**headers, "cache-control": "no-cache"})
    [record] = await proxy.sink.wait()
    proxy.sink.forget()
    assert reply.status != 500, (drawn, reply.raw)
    assert not record.is_internal_error, (drawn, record.error)


async def test_no_response_is_an_internal_error(tmp_path: Path, examples: int) -> None:
    ledger = tmp_path / "ledger.db"
    drawn = st.tuples(
        st.sampled_from(sorted(CLIENTS)),
        st.sampled_from(MODELS),
        st.booleans(),
        st.booleans(),
        st.lists(documents(), min_size=1, max_size=3),
    )
    async with (
        scripted_upstream() as upstream,
        running_proxy(
            tmp_path / "policies",
            policies_for(upstream.url) + GUARDS,
            ledger=LedgerLocation("sqlite", ledger),
        ) as proxy,
    ):
        check = partial(check_response, proxy, upstream)
        await check_examples(drawn, check, examples, Phase.generate)
    assert audit(ledger).violations == ()
