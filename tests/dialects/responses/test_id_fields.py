"""Fields with ids of stored objects. Ids work only for the key that got them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import KEY
from tests.dialects.test_stored_state import (
    OLD,
    OTHER_KEY,
    SECRET,
    TURNED,
    StatefulProxy,
    policy,
    stateful_proxy,
)
from tests.doubles import (
    Json,
    ScriptedUpstream,
    item_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
)

TALK: Json = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}
DELETED: Json = {"id": "conv_1", "object": "conversation.deleted", "deleted": True}
PAGE: Json = {"object": "list", "data": [text_item("x")], "first_id": "msg_1", "last_id": "msg_1"}
FIELDS: Json = {"role": "user", "content": "x"}
REPLY = response(text_item("Hi."))


class Use(NamedTuple):
    """A place where a client sends an id, and the response of the upstream."""

    method: str
    path: str
    body: Json | None
    shown: Json
    status: int = 200


PLACE = "/v1/responses/{resp}"
ABOUT = "/v1/conversations/{conv}"
USES = {
    "previous": Use("POST", "/v1/responses", {"previous_response_id": "{resp}"}, REPLY),
    "reference": Use("POST", "/v1/responses", {"input": [{"id": "{item}"}]}, REPLY),
    "talk": Use("POST", "/v1/responses", {"conversation": "{conv}"}, REPLY),
    "get": Use("GET", PLACE, None, REPLY),
    "cancel": Use("POST", PLACE + "/cancel", None, REPLY),
    "items": Use("GET", PLACE + "/input_items", None, PAGE),
    "delete": Use("DELETE", PLACE, None, {"id": "resp_1", "deleted": True}),
    "talk.get": Use("GET", ABOUT, None, TALK),
    "talk.change": Use("POST", ABOUT, {"metadata": {}}, TALK),
    "talk.items": Use("GET", ABOUT + "/items", None, PAGE),
    "talk.add": Use("POST", ABOUT + "/items", {"items": [FIELDS]}, PAGE),
    "talk.item": Use("GET", ABOUT + "/items/{talked}", None, text_item("x")),
    "talk.drop": Use("DELETE", ABOUT + "/items/{talked}", None, TALK),
    "talk.delete": Use("DELETE", ABOUT, None, DELETED),
}
VALUES: dict[str, Json] = {
    "whole": {"model": "gpt-4o-mini"},
    "streamed": {"model": "gpt-4o-mini", "stream": True},
    "kept nowhere": {"model": "gpt-4o-mini", "store": False},
    "from the cache": {"model": "keeper"},
    "masked": {"model": "watched"},
    "masked and streamed": {"model": "watched", "stream": True},
}
"""How a client gets ids, by what it asks for."""


NATIVE = {"resp": "resp_1", "item": "msg_1", "conv": "conv_1", "talked": "msg_1"}
"""Ids of the provider."""


def id_policies(upstream: str) -> str:
    """Policies with two keys that share an upstream credential, and a renamed deployment."""
    alone, pair = "deployments: [support-chat]}", "deployments: [support-chat, kept, guarded]}"
    assert alone in policy(upstream)
    upper, sep, remainder = policy(upstream).replace(alone, pair).partition("  resilient:\n")
    return upper + "    also_known_as: [chat-of-support]\n" + sep + remainder


async def send(
    context: StatefulProxy, use: Use, ids: Json, key: str, **headers: str
) -> tuple[int, str, dict[str, str]]:
    """Send ids in one place. Return status, body and headers."""
    context.upstream.answer_with(respond(use.shown, use.status))
    body = None if use.body is None else json.dumps(use.body)
    for name, value in ids.items():
        body = body and body.replace(f"{{{name}}}", value)
    sent_value = None if body is None else json.loads(body)
    if use.path == "/v1/responses":
        sent_value = {"model": ids["model"], "input": "x", **(sent_value or {})}
    headers = {"authorization": f"Bearer {key}", **headers}
    path = use.path.format(**ids)
    async with context.session.request(use.method, path, headers=headers, json=sent_value) as reply:
        lower = {name.lower(): value for name, value in reply.headers.items()}
        return reply.status, await reply.text(), lower


async def assert_served(proxy: StatefulProxy, use: Use, ids: Json, key: str, **how: str) -> None:
    """Check that the upstream gets its own ids, and that a call that runs no model is free."""
    status, text, shown = await send(proxy, use, ids, key, **how)
    request = proxy.last
    assert status == 200, text
    assert not any(f'"{native_id}"' in text for native_id in NATIVE.values()), text
    if use.path == "/v1/responses":
        native_body = json.dumps(use.body)
        for name, native_id in NATIVE.items():
            native_body = native_body.replace(f"{{{name}}}", native_id)
        assert json.loads(request.body).items() >= json.loads(native_body).items()
    else:
        assert (request.method, request.path) == (use.method, use.path.format(**NATIVE))
        assert (json.loads(request.body) if request.body else None) == use.body
        assert ("content-type" in request.headers) == (use.body is not None)
        assert shown["x-headrace-cost-usd"] == "0"


async def ids_of(context: StatefulProxy, **request: Any) -> Json:
    """Return the ids that a client gets, by the name of their object."""
    item = text_item("See ann@example.com.")
    full_value = {**WITH_CONTAINERS, "output": [RAN, item]}
    event: Json = {"output_index": 0, "item": RAN}
    ran = [{**event, "type": f"response.output_item.{end}"} for end in ("added", "done")]
    text_events = item_events(1, item, "See ann@", "example.com.")
    events = response_events(ran, text_events, document=full_value)
    shown = stream(events, is_done=False) if "stream" in request else respond(full_value)
    document: Json = {}
    for _ in range(2):  # the second one is cached
        context.upstream.answer_with(shown)
        status, document = await context.ask(**request)
        assert status == 200, document
    last_value = document["events"][-1]["response"] if "stream" in request else document
    names = {"gpt-4o-mini": "support-chat", "keeper": "kept", "watched": "guarded"}
    headers = {"x-headrace-deployment": names[request["model"]]}
    context.upstream.answer_with(respond(TALK))
    _, talk, _ = await context.send("/v1/conversations", "POST", {}, **headers)
    context.upstream.answer_with(respond(PAGE))
    _, page, _ = await context.send(f"/v1/conversations/{talk['id']}/items", **headers)
    response_ids = {"resp": last_value["id"], "item": last_value["output"][1]["id"]}
    talk_ids = {"conv": talk["id"], "talked": page["data"][0]["id"]}
    return {"model": request["model"], **response_ids, **talk_ids}


@pytest.mark.parametrize("text", VALUES)
async def test_id_works_for_its_key(text: str, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    policies = id_policies(upstream.url)
    async with stateful_proxy(tmp_path / "one", upstream, policies, id_secrets=(OLD,)) as context:
        ids = await ids_of(context, **VALUES[text])
        event = json.dumps(ids)
        assert not any(own_value in event for own_value in ("resp_1", "msg_1", "conv_1"))
        for use in USES.values():
            for key in (KEY, TURNED):
                await assert_served(context, use, ids, key)
            if ids["model"] == "gpt-4o-mini" and not use.path.startswith(PLACE):
                alias = {"x-headrace-deployment": "chat-of-support"}
                await assert_served(context, use, ids, KEY, **alias)
        await assert_refused(context, ids, OTHER_KEY)
    folder = tmp_path / "two"
    async with stateful_proxy(folder, upstream, policies, id_secrets=(SECRET, OLD)) as replica:
        for use in USES.values():
            await assert_served(replica, use, ids, KEY)
        await assert_refused(replica, ids, OTHER_KEY)
    async with stateful_proxy(folder, upstream, policies, id_secrets=(SECRET,)) as after:
        await assert_refused(after, ids, KEY)


async def assert_refused(context: StatefulProxy, ids: Json, key: str) -> None:
    """Check that no upstream receives ids from a key."""
    request_count = len(context.upstream.requests)
    for name, use in USES.items():
        status, text, _ = await send(context, use, ids, key)
        assert (status, "not found" in text) == (404, True), name
    assert len(context.upstream.requests) == request_count


async def test_forged_ids_are_unknown(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stateful_proxy(tmp_path / "one", upstream, id_policies(upstream.url)) as context:
        ids = await ids_of(context, **VALUES["whole"])
        forged = {n: ids[n][:-1] + ("A" if ids[n][-1] != "A" else "B") for n in NATIVE}
        of_another_kind = {"resp": ids["conv"], "conv": ids["resp"]}
        of_another_kind |= {"item": ids["resp"], "talked": ids["conv"]}
        for other_ids in (NATIVE, forged, of_another_kind, dict.fromkeys(NATIVE, "x" * 3000)):
            await assert_refused(context, {**ids, **other_ids}, KEY)


async def test_shared_response_leaks_no_ids(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stateful_proxy(tmp_path / "one", upstream, id_policies(upstream.url)) as context:
        upstream.answer_with(respond(WITH_CONTAINERS))
        keys = (KEY, OTHER_KEY) * 4
        at_once = [context.ask(key=key, model="keeper") for key in keys]
        values = [*zip(keys, await asyncio.gather(*at_once), strict=True)]
        values += [(key, await context.ask(key=key, model="keeper")) for key in (KEY, OTHER_KEY)]

    ids: dict[str, set[tuple[str, ...]]] = {KEY: set(), OTHER_KEY: set()}
    for key, (_, document) in values:
        ids[key].add((document["id"], *(item["id"] for item in document["output"])))
    records = await context.proxy.sink.wait(10)
    [mine], [others] = ids.values()
    assert {*mine}.isdisjoint(others)
    assert len(upstream.requests) == 2
    assert {record.cache for record in records} > {"hit"}


async def test_errors_name_sealed_id(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stateful_proxy(tmp_path / "one", upstream, id_policies(upstream.url)) as context:
        ids = await ids_of(context, **VALUES["whole"])
        for use in USES.values():
            names = ("resp", "item", "conv")
            [kind, *_] = [n for n in names if f"{{{n}}}" in f"{use.path} {use.body}"]
            error = {"error": {"message": f"No '{NATIVE[kind]}'.", "type": "t"}}
            status, text, _ = await send(context, use._replace(shown=error, status=404), ids, KEY)
            error = json.loads(text)["error"]
            assert (status, error["message"]) == (404, f"No '{ids[kind]}'.")


async def test_stored_state_requires_a_secret(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    ids = {"model": "gpt-4o-mini", **NATIVE}
    policies = id_policies(upstream.url)
    async with stateful_proxy(tmp_path / "one", upstream, policies, id_secrets=()) as context:
        for name, use in USES.items():
            status, text, _ = await send(context, use, ids, KEY)
            expected = "Send the item itself" if name == "reference" else "HEADRACE_SECRET"
            assert (status, expected in text) == (400, True), text
        assert upstream.requests == []
        upstream.answer_with(respond(REPLY))
        _, document = await context.ask()

    assert (document["id"], document["output"][0]["id"]) == ("resp_1", "msg_1")


INVALID: list[Any] = [{}, {"id": 1}, {"output": "x"}, {"output": [1]}, [], {"data": [1]}]
INVALID += [{"object": "conversation"}]


async def test_unexpected_document_is_an_upstream_error(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    policies = id_policies(upstream.url).replace(
        "dialect: openai,", "dialect: openai, breaker: off,"
    )
    async with stateful_proxy(tmp_path / "one", upstream, policies) as context:
        ids = await ids_of(context, **VALUES["whole"])
        for use in USES.values():
            for document in INVALID:
                status, text, _ = await send(context, use._replace(shown=document), ids, KEY)
                if use.path != "/v1/responses":
                    assert (status, "upstream_invalid_response" in text) == (502, True), text


OWN_VALUE = "cntr_" + "0af1" * 12
CITED: Json = {"type": "container_file_citation", "container_id": OWN_VALUE}
RAN: Json = {
    **{"id": "ci_1", "type": "code_interpreter_call", "status": "completed"},
    **{"code": "1 + 1", "container_id": OWN_VALUE, "outputs": []},
}
SHELL: Json = {
    **{"id": "sh_1", "type": "shell_call", "call_id": "call_1", "status": "completed"},
    "environment": {"type": "container_reference", "container_id": OWN_VALUE},
}
SPOKEN = text_item("See the file.")
SPOKEN["content"][0]["annotations"] = [CITED]
TOOLS: list[Json] = [
    {"type": "code_interpreter", "container": OWN_VALUE},
    {"type": "shell", "environment": {"type": "container_reference", "container_id": OWN_VALUE}},
]
WITH_CONTAINERS = response(RAN, SHELL, SPOKEN, tools=TOOLS[:1])
LISTED = """    passthrough:
      - {path: '/v1/containers/{id}/files/{file}', methods: [GET]}
      - /v1/anything
"""
NAMING: dict[str, Json] = {
    "a tool": {"tools": TOOLS[:1]},
    "the environment of a tool": {"tools": TOOLS[1:]},
    "an item": {"input": [RAN]},
    "the environment of an item": {"input": [SHELL]},
}
"""Requests that name a container."""


def listing(upstream: str, accepts: str = "") -> str:
    """Return policies with listed paths and accepted fields."""
    upper, sep, remainder = policy(upstream).partition("  resilient:\n")
    text = upper + LISTED + sep + remainder
    return text.replace("openai: {dialect: openai,", f"openai: {{dialect: openai, {accepts}")


async def post(context: StatefulProxy, path: str, body: Json) -> tuple[int, Json]:
    body = {"model": "gpt-4o-mini", "input": "x", **body}
    status, document, _ = await context.send(path, "POST", body)
    return status, document


@pytest.mark.parametrize("streamed", [False, True])
async def test_responses_show_ids_unchanged(
    streamed: bool, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    events = response_events(item_events(0, SPOKEN, "See the ", "file."), document=WITH_CONTAINERS)
    upstream.answer_with(stream(events, is_done=False) if streamed else respond(WITH_CONTAINERS))
    request: Json = {"stream": True} if streamed else {}
    async with stateful_proxy(tmp_path / "policies", upstream, listing(upstream.url)) as context:
        status, document = await context.ask(**request)

    assert status == 200, document
    output = document["events"][-1]["response"] if streamed else document
    assert json.dumps(output).count(OWN_VALUE) == 4


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/anything"])
@pytest.mark.parametrize("name", NAMING)
async def test_ids_in_requests_require_accepts(
    name: str, path: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    matches: list[tuple[int, Json]] = []
    upstream.answer_with(respond(response()))
    for accepts in ("", "accepts: [container.id, container_id],"):
        policies = listing(upstream.url, accepts)
        async with stateful_proxy(tmp_path / "policies", upstream, policies) as context:
            matches.append(await post(context, path, NAMING[name]))

    (assert_refused, error), (accepted, _) = matches
    assert (assert_refused, accepted) == (400, 200)
    assert "unless the upstream accepts" in error["error"]["message"]
    [request] = upstream.requests
    sent_body = {field: request.json[field] for field in NAMING[name]}
    for item in sent_body.get("input", []):
        item["id"] = RAN["id"] if item["type"] == RAN["type"] else SHELL["id"]
    assert sent_body == NAMING[name]


async def test_listed_paths_forward_ids(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(respond(b"x", media_type="image/png"))
    path = f"/v1/containers/{OWN_VALUE}/files/cfile_1"
    headers = {"authorization": f"Bearer {KEY}"}
    async with stateful_proxy(tmp_path / "policies", upstream, listing(upstream.url)) as context:
        assert (await context.proxy.send(path, headers=headers, method="GET")).status == 200

    assert upstream.requests[0].path == path
