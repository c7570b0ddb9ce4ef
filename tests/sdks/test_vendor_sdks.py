"""Searches for responses and errors that real SDKs do not parse as those of their vendor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Proxy
from tests.doubles import (
    ScriptedUpstream,
    chat,
    chat_events,
    legacy_completion,
    legacy_events,
    respond,
    response,
    stream,
)
from tests.guards.calls import guarded
from tests.guards.echoes import echoing
from tests.sdks.conftest import Drive
from tests.sdks.upstream_scripts import APIS, respond_text

MESSAGES = [{"role": "user", "content": "Name the capital of France."}]
OPENAIS = ("openai", "openai-async", "azure", "azure-async")
SDKS = (*OPENAIS, "portkey", "fireworks", "scale", "scale-beta")
SCALE = ("scale", "scale-beta")


def step(do: str, **fields: Any) -> dict[str, Any]:
    """Return the step of one call. The model names a deployment."""
    body = {"messages": MESSAGES} if do == "chat" else {"prompt": "The capital of France is"}
    return {"do": do, "with": {"model": "support-chat", **body, **fields}}


EVERY = [pytest.param(sdk, do, id=f"{sdk}-{do}") for sdk in SDKS for do in ("completion", "chat")]
every_sdk = pytest.mark.parametrize(("sdk", "do"), EVERY)


def response_step(do: str, to: str, **fields: Any) -> dict[str, Any]:
    return {"do": do, "with": {"model": to, "input": "Where?", **fields}}


def message_step(do: str, to: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Where?"}]
    return {"do": do, "with": {"model": to, "max_tokens": 64, "messages": messages, **fields}}


def langchain_step(do: str, to: str, **fields: Any) -> dict[str, Any]:
    return {"do": do, "say": "Hello", "with": {"model": to, **fields}}


WEB_SEARCH = {"tools": [{"type": "web_search"}]}


class Reader(NamedTuple):
    """An SDK, the API of the upstream, and the steps of a whole and a streamed call."""

    sdk: str
    api: str
    whole: dict[str, Any]
    streamed: dict[str, Any]


READERS = [
    *(
        Reader(sdk, do, step(do), step(do, stream=True))
        for sdk in SDKS
        for do in ("completion", "chat")
    ),
    *(
        Reader(sdk, APIS[to], response_step("respond", to), response_step("respond-stream", to))
        for sdk, upstreams in (("openai", [*APIS]), ("openai-async", ["responses-only"]))
        for to in upstreams
    ),
    *(
        Reader(sdk, APIS[to], message_step("create", to), message_step("stream", to))
        for sdk in ("anthropic", "anthropic-async")
        for to in ("via-anthropic", "search-answers")
    ),
    *(
        Reader(
            sdk, api, langchain_step(do, to, **more), langchain_step(do, to, stream=True, **more)
        )
        for sdk, do, to, api, more in (
            ("langchain", "completion", "support-chat", "completion", {}),
            ("langchain", "chat", "support-chat", "chat", {}),
            ("langchain-anthropic", "chat", "via-anthropic", "messages", {"max_tokens": 64}),
            ("langchain-anthropic", "chat", "search-answers", "chat", {"max_tokens": 64}),
            ("langchain-responses", "chat", "responses-only", "responses", WEB_SEARCH),
        )
    ),
]


@pytest.mark.parametrize(
    "reader", READERS, ids=lambda reader: f"{reader.sdk}-{reader.api}-{reader.whole['do']}"
)
async def test_sdk_reads_whole_and_streamed_responses(
    reader: Reader, drive: Drive, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    if reader.api == "completion":
        upstream.then(respond(legacy_completion()), stream(legacy_events(" Par", "is.")))
    else:
        scripts = (respond_text(reader.api, " Paris.", streamed=s) for s in (False, True))
        upstream.then(*scripts)

    whole, streamed = await drive(reader.sdk, reader.whole, reader.streamed)

    for result in (whole, streamed):
        assert (result["ok"], result["text"]) == (True, " Paris."), result
    data = whole.get("data")
    usage = whole.get("usage") or (data.get("usage") if isinstance(data, dict) else None) or {}
    names = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    assert [usage[name] for name in names if usage.get(name)] in ([5, 3], [])
    assert usage or reader.sdk == "langchain"
    records = await proxy.sink.wait(2)
    assert {record.outcome for record in records} == {"success"}
    assert {record.billing.tokens.total for record in records} == {8}


@every_sdk
async def test_sdk_raises_its_exception_for_each_error(
    sdk: str, do: str, drive: Drive, upstream: ScriptedUpstream
) -> None:
    upstream.then(respond({"error": {"message": "slow down"}}, 429), respond({}, 500))

    wrong, limited, failing = await drive(
        sdk, step(do, extra_body={"temperature": "hot"}), step(do), step(do)
    )
    [stranger] = await drive(sdk, step(do), key="hr-wrong")

    if sdk in SCALE:  # Scale's clients expect FastAPI's form of field errors
        assert wrong["status"] == 422
    else:
        assert ("BadRequestError" in wrong["mro"], wrong["status"]) == (True, 400)
    assert "temperature" in wrong["message"]
    assert ("RateLimitError" in limited["mro"], limited["status"]) == (True, 429)
    assert ("InternalServerError" in failing["mro"], failing["status"]) == (True, 502)
    assert ("AuthenticationError" in stranger["mro"], stranger["status"]) == (True, 401)


@every_sdk
async def test_sdk_notices_a_cut_stream(
    sdk: str, do: str, drive: Drive, upstream: ScriptedUpstream
) -> None:
    events = chat_events if do == "chat" else legacy_events
    upstream.answer_with(stream(events(" Par", "is."), cut_after=2))

    [cut] = await drive(sdk, step(do, stream=True))

    assert not cut["ok"], cut


@pytest.mark.parametrize("sdk", [*OPENAIS, "portkey", "fireworks"])
async def test_sdk_reads_usage(sdk: str, drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(legacy_events(" Par", "is.")))

    silent, request = await drive(
        sdk,
        step("completion", stream=True),
        step("completion", stream=True, extra_body={"stream_options": {"include_usage": True}}),
    )

    assert request["usage"]["total_tokens"] == 8
    assert (silent["usage"] is not None) == (sdk == "fireworks")
    assert all(item.json["stream_options"]["include_usage"] for item in upstream.requests)


async def test_openai_reads_embeddings_and_ids(drive: Drive, upstream: ScriptedUpstream) -> None:
    vectors = {"object": "list", "model": "m", "data": [{"embedding": [0.5], "index": 0}]}
    upstream.then(respond({**vectors, "usage": {"prompt_tokens": 2, "total_tokens": 2}}))

    embedded, listed, document, missing, identified = await drive(
        "openai",
        {
            "do": "embeddings",
            "with": {"model": "support-chat", "input": "hi", "encoding_format": "float"},
        },
        {"do": "models", "with": {}},
        {"do": "model", "with": {"model": "openai/gpt-4o-mini"}},
        {"do": "model", "with": {"model": "nobody-has-it"}},
        {"do": "request_id", "with": step("completion")["with"]},
    )

    assert embedded["data"]["data"][0]["embedding"] == [0.5]
    assert {"gpt-4o-mini", "compare"} < {model["id"] for model in listed["data"]["data"]}
    assert document["data"]["id"] == "openai/gpt-4o-mini"
    assert (missing["exception"], missing["status"]) == ("NotFoundError", 404)
    assert identified["request_id"].startswith("req_")


async def test_azure_sdk_names_deployments(
    drive: Drive, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    vectors = {"object": "list", "model": "m", "data": [{"embedding": [0.5], "index": 0}]}
    usage = {"usage": {"prompt_tokens": 2, "total_tokens": 2}}
    upstream.then(respond(chat(" Paris.")), respond({**vectors, **usage}), respond(response()))
    fixed = {"client": {"azure_deployment": "support-chat"}}

    chatted, embedded, responded, listed, missing = await drive(
        "azure",
        {**step("chat", model="gpt-4o"), **fixed},
        {
            "do": "embeddings",
            "with": {"model": "support-chat", "input": "hi", "encoding_format": "float"},
        },
        {"do": "respond", "with": {"model": "support-chat", "input": "hi"}, **fixed},
        {"do": "models", "with": {}, **fixed},
        step("chat", model="nobody-has-it"),
    )

    assert chatted["text"] == " Paris.", chatted
    assert embedded["data"]["data"][0]["embedding"] == [0.5]
    assert responded["ok"], responded
    assert "gpt-4o-mini" in {model["id"] for model in listed["data"]["data"]}
    assert (missing["exception"], missing["status"]) == ("NotFoundError", 404)
    assert [request.json["model"] for request in upstream.requests] == ["gpt-4o-mini"] * 3
    assert all("api-key" not in request.headers for request in upstream.requests)
    routes = [record.head.route for record in await proxy.sink.wait(5)]
    assert routes[0] == "/openai/deployments/{deployment}/chat/completions"


async def test_portkey_sdk_sends_only_its_key(
    drive: Drive, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    options = {
        "config": {"cache": {"mode": "simple"}, "retry": {"attempts": 2}},
        "trace_id": "tr1",
        "metadata": {"_user": "u1", "feature": "search-box"},
    }

    [served] = await drive("portkey", {**step("completion"), "client": options})

    assert served["ok"], served
    [request] = upstream.requests
    assert request.headers["authorization"] == "Bearer sk-upstream-secret"
    assert not [name for name in request.headers if name.startswith("x-portkey")]
    [record] = await proxy.sink.wait()
    assert record.plan.tags == {"env": "prod", "team": "support", "feature": "search-box"}


async def test_multimodel_has_choice_per_model(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"first": respond(legacy_completion(" one")), "second": respond({}, 503)}
    fields = {"prompt": "Once", "max_tokens": 5}

    pair, single, bare, nothing = await drive(
        "thiggle",
        {"do": "completion", "with": {**fields, "model": ["first", "second"]}},
        {"do": "completion", "with": {**fields, "model": ["first"]}},
        {"do": "completion", "with": {**fields, "model": "first"}},
        {"do": "completion", "with": {**fields, "model": ["second"]}},
    )

    first_value, second = pair["data"]["choices"]
    assert (first_value["model"], first_value["text"], first_value["finish_reason"]) == (
        "first",
        " one",
        "stop",
    )
    assert (second["model"], second["finish_reason"]) == ("second", "error")
    assert pair["data"]["usage"]["total_tokens"] == first_value["usage"]["total_tokens"] == 8
    assert single["data"]["choices"][0]["text"] == bare["data"]["choices"][0]["text"] == " one"
    assert nothing["exception"] == "HTTPError"


async def test_enkrypt_sdk_reads_findings(
    drive: Drive, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    upstream.then(respond(chat("Paris.")))
    body = {"model": "m", "messages": MESSAGES, "enkrypt_context": "France"}
    options = {"tags": "beta", "refresh_cache": True, "return_error": True}

    served, refused = await drive(
        "enkrypt",
        {"do": "chat", "with": body, "client": options},
        {"do": "chat", "with": {**body, "n": 1000}, "client": options},
    )

    assert served["ok"], served
    assert served["text"] == "Paris."
    assert "enkrypt_policy_detections" in served["data"]
    assert refused["kind"] == "ChatCompletionErrorResponse", refused
    record, _ = await proxy.sink.wait(2)
    assert record.plan.tags["beta"] == "true"
    assert "enkrypt_context" not in upstream.requests[0].json


async def test_sdk_gets_restored_values(
    drive: Drive, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(echoing(2))
    request = "Write to jane@example.com"
    fields = {"messages": [{"role": "user", "content": request}]}
    pii = "{guard: pii, entities: [email], action: mask, restore: true}"
    async with guarded(tmp_path, upstream, f"input: [{pii}]") as proxy:
        streamed, document = await drive(
            "openai", step("chat", stream=True, **fields), step("chat", **fields), url=proxy.url
        )

    assert [b"jane" in item.body for item in upstream.requests] == [False, False]
    assert (streamed["text"], document["text"]) == (request, request)
    [call] = document["data"]["choices"][0]["message"]["tool_calls"]
    deltas = [item["choices"][0]["delta"] for item in streamed["data"] if item["choices"]]
    calls = [delta["tool_calls"][0] for delta in deltas if delta.get("tool_calls")]
    arguments = "".join(item["function"]["arguments"] for item in calls)
    for item in (call["function"]["arguments"], arguments):
        assert json.loads(item) == {"said": [request]}


FLAG = "{guard: keywords, name: rivals, words: [hippo], action: flag}"
BLOCK = "{guard: pii, entities: [email]}"


async def test_portkey_sdk_reads_hooks(
    drive: Drive, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.then(respond(chat("A hippo.")), respond(chat("jane@example.com")))
    upstream.answer_with(stream(chat_events("A hip", "po.")))
    async with guarded(tmp_path, upstream, f"output: [{FLAG}, {BLOCK}]") as proxy:
        flagged, denied, streamed = await drive(
            "portkey", step("chat"), step("chat"), step("chat", stream=True), url=proxy.url
        )

    assert flagged["text"] == "A hippo."
    results = flagged["data"]["hook_results"]
    assert [h["verdict"] for h in results["after_request_hooks"]] == [False, True]
    assert (denied["status"], denied["code"]) == (446, "guardrail_blocked")
    assert denied["document"]["hook_results"]["after_request_hooks"][1]["deny"]
    assert (streamed["ok"], streamed["text"]) == (True, "A hippo.")


async def test_enkrypt_sdk_reads_detections(
    drive: Drive, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.then(respond(chat("A hippo.")), respond(chat("jane@example.com")))
    fields = {"do": "chat", "with": {"model": "m", "messages": MESSAGES}}
    fields["client"] = {"return_error": True}
    async with guarded(tmp_path, upstream, f"output: [{FLAG}, {BLOCK}]") as proxy:
        flagged, blocked = await drive("enkrypt", fields, fields, url=proxy.url)

    def summary(result: dict[str, Any]) -> Any:
        return result["data"]["enkrypt_policy_detections"]["output_guardrails"]["summary"]

    assert (flagged["text"], flagged["kind"]) == ("A hippo.", "ChatCompletionResponse")
    assert summary(flagged) == {"keyword_detected": 1, "pii": 0}
    assert blocked["kind"] == "ChatCompletionErrorResponse"
    assert summary(blocked) == {"keyword_detected": 0, "pii": 1}
