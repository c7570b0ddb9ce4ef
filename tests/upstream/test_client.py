"""Faults, dialects and fields of upstreams, over sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.upstream.client import build_request_target, encode_head_without_framing
from tests.conftest import Proxy
from tests.doubles import (
    Script,
    ScriptedUpstream,
    chat,
    closes,
    event,
    hang,
    head,
    http_chunk,
    legacy_completion,
    legacy_events,
    respond,
    stream,
    usage,
)
from tests.for_each import for_each
from tests.test_pipeline import BEARER, ROUTES


@pytest.fixture
def proxy(hasty_proxy: Proxy) -> Proxy:
    return hasty_proxy


ROUTE = ROUTES["openai"]


STREAM_HEAD = head(200, "text/event-stream", "transfer-encoding: chunked")
FIRST_VALUE = http_chunk(event(legacy_events(" Par")[0]))
INVALID, TIMEOUT = (502, "upstream_invalid_response"), (504, "upstream_total_timeout")
WHOLE_FAULTS = {
    "hang": (hang(), *TIMEOUT),
    "stall in the body":
        (hang(head(200, "application/json", "content-length: 50") + b'{"ch'), *TIMEOUT),
    "empty": (respond(b""), *INVALID),
    "html": (respond(b"<html>", media_type="text/html"), *INVALID),
    "an array": (respond([]), *INVALID),
    "truncated json": (respond(b'{"choices": ['), *INVALID),
    "no choices": (respond({"id": "x"}), *INVALID),
    "an error under 200": (respond({"error": {"message": "x"}}), 502, "upstream_unavailable"),
    "204": (respond(b"", 204), *INVALID),
    "redirect": (respond(b"", 307, "location: http://127.0.0.1:1/"), *INVALID),
    "gzip unasked": (respond(b"xx", 200, "content-encoding: gzip"), *INVALID),
    "two lengths": (respond(legacy_completion(), 200, "content-length: 1"), *INVALID),
    "too short a body":
        (closes(head(200, "application/json", "content-length: 50") + b'{"ch'), *INVALID),
    "a huge header": (respond(legacy_completion(), 200, "x: " + "y" * 2**20), *INVALID),
    "bad key": (respond({"error": {"message": "key sk-x"}}, 401), 403, "upstream_rejected_key"),
    "429": (respond({}, 429, "retry-after: 7"), 429, "upstream_unavailable"),
    "503": (respond({}, 503, "retry-after: later"), 503, "upstream_unavailable"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("script", "status", "code"), [pytest.param(*v, id=k) for k, v in WHOLE_FAULTS.items()]
)
async def test_fault_has_its_status_and_next_call_succeeds(
    script: Script, status: int, code: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.then(script)
    body = ROUTE.body(streamed=False)

    response = await proxy.send(ROUTE.path, body, BEARER)
    assert (await proxy.send(ROUTE.path, body, BEARER)).json["choices"]

    assert (response.status, response.json["error"]["code"]) == (status, code)
    assert "sk-" not in json.dumps(response.json)
    waits = (status, code) == (429, "upstream_unavailable")
    assert response.headers.get("retry-after") == ("7" if waits else None)
    failed, _ = await proxy.sink.wait(2)
    if failed.attempts[0].status != 200 and status != 504:
        assert (failed.billing.tokens.total, failed.billing.cost) == (0, 0)


STREAM_FAULTS = {
    "stall": (hang(STREAM_HEAD, FIRST_VALUE), "upstream_idle_timeout"),
    "bad json":
        (closes(STREAM_HEAD, FIRST_VALUE, http_chunk(event(b"{oops"))),
        "upstream_invalid_response"),
    "an error event":
        (closes(STREAM_HEAD, FIRST_VALUE, http_chunk(event({"error": {"message": "overloaded"}}))),
        "upstream_unavailable"),
    "an error event, and all the rest at once": (closes(STREAM_HEAD + FIRST_VALUE
        + http_chunk(event({"error": {"message": "overloaded"}}) + event(b"[DONE]"))
        + b"0\r\n\r\n"),
        "upstream_unavailable"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("script", "code"), [pytest.param(*v, id=k) for k, v in STREAM_FAULTS.items()]
)
async def test_fault_in_a_stream_ends_it_with_an_error_event(
    script: Script, code: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(script)

    received = (await proxy.send(ROUTE.path, ROUTE.body(streamed=True), BEARER)).raw

    assert code.encode() in received
    assert b"[DONE]" not in received
    [record] = await proxy.sink.wait()
    assert record.error.code == code


async def test_finish_ends_stream(upstream: ScriptedUpstream, proxy: Proxy) -> None:
    upstream.answer_with(stream(legacy_events(" Par", "is."), is_done=False))

    received = (await proxy.send(ROUTE.path, ROUTE.body(streamed=True), BEARER)).raw

    assert received.count(b"[DONE]") == 1


@for_each(
    ("url", "place"),
    [
        ("http://openai/v1/x", (("openai", 80, False), "POST /v1/x HTTP/1.1\r\n", "openai")),
        ("https://openai:443", (("openai", 443, True), "POST / HTTP/1.1\r\n", "openai")),
        ("https://Openai:80/", (("openai", 80, True), "POST / HTTP/1.1\r\n", "Openai:80")),
        (
            "http://[::1]:8000/a?b=c",
            (("::1", 8000, False), "POST /a?b=c HTTP/1.1\r\n", "[::1]:8000"),
        ),
    ],
    ids=["plain", "usual port", "unusual port", "address"],
)
def test_url_is_split_into_server_and_path(url: str, place: Any) -> None:
    assert build_request_target(url) == place


def test_host_header_of_the_policy_replaces_the_own_one() -> None:
    place = build_request_target("http://10.0.0.1/")

    assert encode_head_without_framing(place, {"host": "models.test"}).count(b"host: ") == 1
    assert b"host: 10.0.0.1\r\n" in encode_head_without_framing(place, {})


async def test_dropped_fields_are_warned_of(upstream: ScriptedUpstream, proxy: Proxy) -> None:
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


async def test_models_of_a_list_are_called_concurrently(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.by_model = {
        "first": respond(legacy_completion(" one")),
        "second": respond(legacy_completion(" two", usage=usage(7, 11))),
        "third": respond(chat(" three")),
    }
    body = {"model": ["third", "first", "second"], "prompt": "Once upon a time"}

    fields = (await proxy.send("/v1/completion", body, ROUTES["multimodel"].credential)).json

    assert [c["text"] for c in fields["choices"]] == [" three", " one", " two"]
    assert [c["usage"]["completion_tokens"] for c in fields["choices"]] == [3, 3, 11]
    assert fields["usage"]["completion_tokens"] == 17
    [record] = await proxy.sink.wait()
    assert record.billing.tokens.completion_total == 17
    assert record.billing.cost is None  # one of the three models has no known price
    assert len(record.attempts) == 3
