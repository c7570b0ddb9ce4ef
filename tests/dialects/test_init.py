"""Routes and dialects: every route is in one table, and nothing else is served."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import (
    DIALECTS,
    DIALECTS_BY_HEADER,
    DIALECTS_OF_PATH,
    ROUTES,
    RequestContext,
    find_dialect,
    parse_request_head,
    read_call,
)
from proxy.dialects.requests.translation import translate_body
from proxy.errors import NotFound
from proxy.errors.wire import MethodNotAllowed
from proxy.types import RequestHead, Target, Upstream
from tests.for_each import for_each


def test_every_route_is_known_by_name() -> None:
    chats = {path for (_, path), (_, endpoint) in ROUTES.items() if endpoint == "chat"}
    prefixes = ["", "/v1", "/openai/v1", "/openai/deployments/{deployment}", "/inference/v1"]
    prefixes += ["/v4/beta", "/v5", "/ai-proxy"]

    assert len(ROUTES) == 90
    paths = {f"{prefix}/chat/completions" for prefix in prefixes}
    assert chats == {*paths, "/v1/messages", "/messages"}


@for_each(
    "path",
    [
        *("/", "/v1", "/v1/completions/", "//v1/completions", "/V1/completions"),
        *("/v1/%63ompletions", "/v1/../v1/completions", "/v1/completions;x"),
        *("http://elsewhere/v1/completions", "/v1/responses/", "/v1/models/", "/v1/modelsx"),
        "/v2/models/a",
    ],
)
def test_other_path_is_not_served(path: str) -> None:
    with pytest.raises(NotFound):
        parse_request_head("POST", path, {}, RequestContext("req_1"))


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/v1/models/a", "GET, HEAD"),
        ("DELETE", "/models/a/b", "GET, HEAD"),
    ],
)
def test_wrong_method_lists_allowed_ones(method: str, path: str, allowed: str) -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        parse_request_head(method, path, {}, RequestContext("req_1"))

    assert refused.value.headers == (("allow", allowed),)


def test_path_selects_the_dialect() -> None:
    for name, dialect in DIALECTS.items():
        known_by = {"portkey": "x-portkey-api-key", "anthropic": "x-api-key"}
        headers = {known_by[name]: "k"} if name in known_by else {}
        for _, path in dialect.client.routes:
            assert find_dialect(path.replace("{model}", "a/b"), headers) is dialect


def test_route_belongs_to_one_dialect_or_a_sharing_group() -> None:
    for name, dialect in DIALECTS.items():
        assert dialect.name == name
        for route in dialect.client.routes:
            sharing = DIALECTS_BY_HEADER[ROUTES[route][0]].values()
            assert name in DIALECTS_OF_PATH[route[1]] or dialect in sharing


@for_each(
    ("path", "model"),
    [
        ("/v1/models/gpt-4o-mini", "gpt-4o-mini"),
        ("/v1/models/openai/gpt-4o-mini", "openai/gpt-4o-mini"),
        ("/v1/models/openai%2Fgpt-4o-mini", "openai/gpt-4o-mini"),
        ("/models/{model}", "{model}"),
        ("/models/a%252Fb", "a%2Fb"),
    ],
)
@for_each("method", ["GET", "HEAD"])
def test_route_has_no_path_parameter(method: str, path: str, model: str) -> None:
    context = RequestContext("req_1", query="key=sk-1&model=other")
    head = parse_request_head(method, path, {}, context)

    assert (head.endpoint, head.parameters) == ("models", (("model", model),))
    assert head.route == path[: path.index("/models/")] + "/models/{model}"


@for_each(
    ("path", "endpoint", "name"),
    [
        ("gpt/chat/completions", "chat", "gpt"),
        ("gpt/completions", "completions", "gpt"),
        ("gpt/embeddings", "embeddings", "gpt"),
        ("chat/completions", "completions", "chat"),
        ("openai/gpt/chat/completions", "chat", "openai/gpt"),
        ("openai%2Fgpt/chat/completions", "chat", "openai/gpt"),
    ],
)
def test_azure_path_names_the_model(path: str, endpoint: str, name: str) -> None:
    context = RequestContext("req_1", query="a=b")
    head = parse_request_head("POST", f"/openai/deployments/{path}", {}, context)

    assert (head.dialect, head.endpoint) == ("openai", endpoint)
    assert head.parameters == (("deployment", name),)


@for_each("model", [None, "gpt", "another", ["gpt"], 5])
def test_model_in_path_precedes_model_in_body(model: Any) -> None:
    path = "/openai/deployments/gpt/chat/completions"
    head = parse_request_head("POST", path, {}, RequestContext("req_1"))
    body = {"messages": [{"role": "user", "content": "Hi"}], **({"model": model} if model else {})}

    call = read_call(head, body)

    assert (call.requested_models, call.body["model"]) == (("gpt",), "gpt")
    assert bool(call.warnings) == (model not in (None, "gpt"))


def test_embeddings_are_never_streamed() -> None:
    head = RequestHead("openai", "embeddings", "/v1/embeddings", "req_1")

    assert not read_call(head, {"model": "m", "input": "x", "stream": True}).stream


LEFT_OUT = [
    ("scale", {"max_tokens": 3, "max_new_tokens": 4}, ("max_new_tokens dropped",)),
    ("scale", {"max_tokens": 3, "max_new_tokens": 3}, ()),
    ("scale", {"max_tokens": 3, "max_completion_tokens": 4}, ("max_completion_tokens dropped",)),
    ("scale", {"max_new_tokens": 4}, ()),
    ("scale", {"logprobs": False, "return_token_log_probs": True}, ()),
    ("scale", {"inference_extra_headers": {"x-team": "a"}}, ()),
    ("scale", {"inference_extra_headers": {"x-team": "a", "Authorization": "b"}},
        ("inference_extra_headers filtered",)),
    ("multimodel", {"max_tokens": 3, "max_new_tokens": 4}, ("max_new_tokens dropped",)),
    ("enkrypt", {"context": "a", "enkrypt_context": "b"}, ("context dropped",)),
    ("enkrypt", {"context": "a"}, ()),
]  # fmt: skip


@for_each(("dialect", "fields", "warnings"), LEFT_OUT)
def test_dropped_fields_are_warned_of(dialect: str, fields: Any, warnings: Any) -> None:
    head = RequestHead(dialect, "completions", "/", "r")

    assert read_call(head, {"model": "m", "prompt": "p", **fields}).warnings == warnings


@for_each(("dialect", "dropped"), [("scale", ()), ("openai", ("stop_sequences",))])
def test_second_stop_field_is_dropped_for_other_upstreams(dialect: str, dropped: Any) -> None:
    fields = {"model": "m", "prompt": "p", "stop": ["a"], "stop_sequences": ["b"]}
    call = read_call(RequestHead("scale", "completions", "/", "r"), fields)
    ways: Any = ("completions", "completions")
    target = Target(Upstream("one", dialect, "http://127.0.0.1:9"), "m")

    request = translate_body(DIALECTS["scale"], ways, call.body, target)

    second = request.body.get("stop_sequences")
    assert (request.body["stop"], second) == (["a"], None if dropped else ["b"])
    assert request.dropped_fields == dropped
