"""A client of any dialect is served by an upstream of any dialect."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Proxy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    legacy,
    legacy_events,
    stream,
    usage,
)
from tests.test_pipeline import ROUTES, texts

OTHER_ENDPOINTS: dict[str, tuple[Json, str, Json]] = {
    "openai": (
        {"model": "search-answers", "logprobs": 2},
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "The capital of France is"}],
            **{"logprobs": True, "top_logprobs": 2, "model": "smol"},
        },
    ),
    "openai-chat": (
        {"model": "legacy-only"},
        "/v1/completions",
        {"prompt": "user: Name the capital of France.\n\nassistant:"},
    ),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", OTHER_ENDPOINTS)
async def test_other_endpoint_serves(
    name: str, streamed: bool, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    options, path, sent_body = OTHER_ENDPOINTS[name]
    route, chats = ROUTES[name], name == "openai"
    events = (chat_events if chats else legacy_events)(" Par", "is.")
    document = chat(" Paris.") if chats else legacy(" Paris.")
    upstream.answer_with(stream(events) if streamed else answer(document))
    body = {**route.body(streamed=streamed), **options}

    raw = (await proxy.send(route.path, body, route.credential)).raw

    assert texts(route, raw, streamed=streamed) == " Paris."
    assert (b"text_completion" in raw) is chats
    [request] = upstream.requests
    assert request.path == path
    assert request.json.items() >= sent_body.items()


async def test_warns_of_dropped(upstream: ScriptedUpstream, proxy: Proxy) -> None:
    route = ROUTES["scale-5"]
    fields = {
        "stop": ["a"],
        "stop_sequences": ["b"],
        "max_tokens": 3,
        "max_new_tokens": 4,
        "inference_extra_headers": {"x-team": "support", "authorization": "x"},
    }
    headers = {**route.credential, "x-headrace-deployment": "via-scale"}
    warnings = []
    for deployment in ("via-scale", "support-chat"):
        headers["x-headrace-deployment"] = deployment
        body = route.body(streamed=False, **fields)
        response = await proxy.send(route.path, body, headers)
        assert response.status == 200
        warnings.append(response.headers["x-headrace-warning"].split("; "))

    left_out = ["max_new_tokens dropped", "inference_extra_headers filtered"]
    local_value, context = warnings
    assert local_value == left_out
    assert context == ["stop_sequences dropped", "inference_extra_headers dropped", *left_out]
    events = upstream.requests[0].json
    assert events["inference_extra_headers"] == {"x-team": "support"}
    assert (events["stop"], events["stop_sequences"]) == (["a"], ["b"])
    assert (events["max_tokens"], "max_new_tokens" in events) == (3, False)


async def test_models_answer_side_by_side(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {
        "first": answer(legacy(" one")),
        "second": answer(legacy(" two", usage=usage(7, 11))),
        "third": answer(chat(" three")),
    }
    body = {"model": ["third", "first", "second"], "prompt": "Once upon a time"}

    fields = (await proxy.send("/v1/completion", body, ROUTES["multimodel"].credential)).json

    assert [c["text"] for c in fields["choices"]] == [" three", " one", " two"]
    assert [c["usage"]["completion_tokens"] for c in fields["choices"]] == [3, 3, 11]
    assert fields["usage"]["completion_tokens"] == 17
    [record] = await proxy.sink.wait()
    assert record.billing.tokens.completion_total == 17
    assert record.billing.cost is None  # one of the three has no known price
    assert len(record.attempts) == 3


async def test_all_models_failing_is_an_error(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer({}, 503))
    body = {"model": ["first", "second"], "prompt": "Once upon a time"}

    response = await proxy.send("/v1/completion", body, ROUTES["multimodel"].credential)

    assert response.status == 503
    assert response.json["error"]["code"] == "upstream_unavailable"


@pytest.mark.parametrize(
    ("name", "fields", "warning"),
    [
        ("enkrypt", {"context": "c"}, "context dropped"),
        ("scale-5", {"return_token_log_probs": True}, "return_token_log_probs dropped"),
        (
            "scale-5",
            {"logprobs": True, "top_logprobs": 2},
            "top_logprobs dropped; logprobs dropped",
        ),
    ],
)
async def test_what_is_dropped_is_named_as_the_client_said_it(
    name: str, fields: dict[str, Any], warning: str, proxy: Proxy
) -> None:
    route = ROUTES[name]
    headers = {**route.credential, "x-headrace-deployment": "via-multimodel"}

    body = route.body(streamed=False, **fields)
    assert (await proxy.send(route.path, body, headers)).headers["x-headrace-warning"] == warning
