"""Real SDKs use the proxy: they parse responses and raise their own exceptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy
from tests.doubles import (
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    legacy,
    legacy_events,
    response,
    stream,
)
from tests.guards.calls import guarded
from tests.guards.echoes import echoing
from tests.sdks.conftest import Drive

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


@every_sdk
async def test_sdk_reads_whole_and_streamed_responses(
    sdk: str, do: str, drive: Drive, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    events = chat_events if do == "chat" else legacy_events
    upstream.then(
        answer(chat(" Paris.") if do == "chat" else legacy()), stream(events(" Par", "is."))
    )

    document, streamed = await drive(sdk, step(do), step(do, stream=True))

    assert (document["ok"], document["text"]) == (True, " Paris."), document
    assert (streamed["ok"], streamed["text"]) == (True, " Paris."), streamed
    assert document["data"]["usage"]["total_tokens"] == 8
    assert [record.outcome for record in await proxy.sink.wait(2)] == ["success", "success"]


@every_sdk
async def test_sdk_raises_its_exception_for_each_error(
    sdk: str, do: str, drive: Drive, upstream: ScriptedUpstream
) -> None:
    upstream.then(answer({"error": {"message": "slow down"}}, 429), answer({}, 500))

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
    upstream.then(answer({**vectors, "usage": {"prompt_tokens": 2, "total_tokens": 2}}))

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
    upstream.then(answer(chat(" Paris.")), answer({**vectors, **usage}), answer(response()))
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


async def test_openai_sdk_retries(drive: Drive, upstream: ScriptedUpstream, proxy: Proxy) -> None:
    retrying = {"client": {"max_retries": 2}}
    upstream.then(answer({"error": {"message": "slow down"}}, 429, "retry-after: 1"))

    refused, served = await drive(
        "openai",
        {**step("completion", extra_body={"n": "many"}), **retrying},
        {**step("completion"), **retrying},
    )

    assert (refused["status"], refused["param"], refused["code"]) == (400, "n", "invalid_value")
    assert refused["request_id"].startswith("req_")
    assert served["text"] == " Paris."
    outcomes = [record.outcome for record in await proxy.sink.wait(3)]
    assert outcomes == ["client_error", "upstream_error", "success"]


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


async def test_langchain_nulls_pass(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(legacy()), stream(legacy_events(" Par", "is.")), answer(chat(" Paris.")))
    model = {"model": "support-chat"}

    document, streamed, chatted = await drive(
        "langchain",
        {"do": "completion", "say": "Hello", "with": model},
        {"do": "completion", "say": "Hello", "with": {**model, "stream": True}},
        {"do": "chat", "say": "Hello", "with": model},
    )

    assert [item["text"] for item in (document, streamed, chatted)] == [" Paris."] * 3
    assert upstream.requests[0].json["prompt"] == ["Hello"]


async def test_multimodel_has_choice_per_model(drive: Drive, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"first": answer(legacy(" one")), "second": answer({}, 503)}
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
    upstream.then(answer(chat("Paris.")))
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
    upstream.then(answer(chat("A hippo.")), answer(chat("jane@example.com")))
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
    upstream.then(answer(chat("A hippo.")), answer(chat("jane@example.com")))
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
