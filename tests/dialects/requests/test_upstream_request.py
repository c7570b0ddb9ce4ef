"""The question to an upstream holds what policy saw, and nothing of the client's headers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.dialects import DIALECTS, read_call
from proxy.dialects.requests.upstream_request import build_request, translate_request
from proxy.errors import InvalidField
from proxy.runtime.offload import LARGE_BYTES
from proxy.types import ParameterOverrides, RequestHead, Secret, Target, Upstream

UPSTREAM = Upstream("up", "openai", "https://api.example.test/v1", api_key=Secret("sk"))


def question(upstream: Upstream, *, path: str = "/v1/completions", **fields: Any) -> Any:
    endpoint: Any = "chat" if "messages" in fields else "completions"
    body = {"model": "asked", **({} if "messages" in fields else {"prompt": "p"}), **fields}
    call = read_call(RequestHead("openai", endpoint, path, "req_1"), body)
    return build_request(
        call, Target(upstream, "served"), DIALECTS["openai"], DIALECTS[upstream.dialect]
    )


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.example.test", "https://api.example.test/v1/completions"),
        ("https://api.example.test/", "https://api.example.test/v1/completions"),
        ("https://api.example.test/v2", "https://api.example.test/v2/completions"),
    ],
)
def test_a_base_without_a_path_gets_the_dialects_own(base: str, url: str) -> None:
    assert question(replace(UPSTREAM, base_url=base)).url == url


def test_usage_is_asked_for_in_streams_only_where_it_must_be() -> None:
    fireworks = replace(UPSTREAM, dialect="fireworks")

    assert json.loads(question(UPSTREAM, stream=True).body)["stream_options"] == {
        "include_usage": True
    }
    assert "stream_options" not in json.loads(question(UPSTREAM).body)
    assert "stream_options" not in json.loads(question(fireworks, stream=True).body)


def test_headers_are_ours_and_the_policys() -> None:
    headers = question(replace(UPSTREAM, headers=(("X-Team", Secret("t")),))).headers

    assert headers.keys() == {
        "accept",
        "accept-encoding",
        "authorization",
        "content-type",
        "user-agent",
        "x-team",
    }
    assert headers["accept-encoding"] == "identity"


def test_embeddings_are_refused_where_there_are_none() -> None:
    head = RequestHead("openai", "embeddings", "/v1/embeddings", "req_1")
    call = read_call(head, {"model": "m", "input": "x"})
    scale = Target(replace(UPSTREAM, dialect="scale"), "served")

    with pytest.raises(InvalidField, match="no embeddings"):
        build_request(call, scale, DIALECTS["openai"], DIALECTS["scale"])


def test_a_call_is_put_into_a_targets_form_once_and_anew_where_anything_differs() -> None:
    openai = DIALECTS["openai"]
    request = {"model": "asked", "messages": [{"role": "user", "content": "p"}], "stream": True}
    call = read_call(RequestHead("openai", "chat", "/v1/chat/completions", "req_1"), request)
    target, other_target = Target(UPSTREAM, "served"), Target(UPSTREAM, "other")
    capped = ParameterOverrides(set={"temperature": 0})

    result = translate_request(call, target, openai, openai, capped)
    sent_value = build_request(call, target, openai, openai, capped)

    assert translate_request(call, target, openai, openai, capped) is result
    assert json.loads(sent_value.body) == {**result.body, "stream_options": {"include_usage": True}}
    assert "stream_options" not in result.body
    assert "temperature" not in translate_request(call, target, openai, openai).body
    assert translate_request(call, other_target, openai, openai, capped).body["model"] == "other"
    masked = replace(call, body={**call.body, "messages": [{"role": "user", "content": "***"}]})
    [message] = translate_request(masked, target, openai, openai, capped).body["messages"]
    assert message["content"] == "***"
    large = replace(call, size=LARGE_BYTES + 1)
    assert translate_request(large, target, openai, openai) is not translate_request(
        large, target, openai, openai
    )
