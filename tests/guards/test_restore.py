"""Placeholders are equal in all calls of a key, and values are restored from them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.conftest import Proxy, policies_for, running_proxy
from tests.dialects.test_responses import accumulated as accumulated_response
from tests.dialects.vendors.test_anthropic import accumulated, events_of
from tests.doubles import (
    Json,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    block_events,
    item_events,
    message,
    message_events,
    respond,
    response,
    response_events,
    stream,
    text_events,
    text_item,
)
from tests.for_each import for_each
from tests.guards.conversations import FORMS, PLACEHOLDER, Form, ReceivedTexts
from tests.telemetry.collector import Collector

ADA, BOB = "ada@mill.example", "bob@mill.example"
OTHER_KEY = "hr-search-key"
FINE = {"type": "text", "text": "Fine."}
SECRET = "a secret of replicas"
POLICY = """
policies:
  default:
    match: all
    input: [{guard: pii, entities: [email], action: mask, restore: true}]
"""


@asynccontextmanager
async def proxy_with_restore(
    folder: Path, upstream: ScriptedUpstream, extra: str = "", **settings: Any
) -> AsyncIterator[tuple[Proxy, aiohttp.ClientSession]]:
    reach = "deployments: [search-answers, responses-only, via-anthropic]"
    policies = policies_for(upstream.url).replace("deployments: [search-answers]", reach)
    policies += f"{POLICY}    {extra}\n"
    async with (
        running_proxy(folder, policies, **settings) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        yield proxy, client


def echo(form: Form, streamed: bool, cut: int | None = None) -> Any:
    """Answer with the text of the last turn and with a tool's argument of the same text. Pieces of
    a stream end ``cut`` characters into its first placeholder."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        text = last_text(request)
        arguments = json.dumps({"said": [text]})
        pieces = [divided(name, cut) for name in (text, arguments)]
        await form.script(*pieces, streamed=streamed)(request, wire)

    return script


def last_text(request: ReceivedRequest) -> str:
    """Return the text of the last turn as the upstream has it."""
    body = request.json
    return str((body.get("messages") or body["input"])[-1]["content"])


def divided(text: str, cut: int | None) -> list[str]:
    match = PLACEHOLDER.search(text)
    if cut is None or match is None:
        return [text]
    index = match.start() + cut
    return [text[:index], text[index:]]


@for_each("restart", [False, True], ids=["same process", "another replica"])
@for_each("form", FORMS)
async def test_next_turn_begins_with_the_same_bytes(
    form: Form, restart: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """So the provider's prompt cache matches the whole first request."""
    upstream.answer_with(echo(form, streamed=False))
    turns = [f"Write to {ADA}, not to {BOB}."]
    async with proxy_with_restore(tmp_path / "one", upstream, id_secrets=(SECRET,)) as (_, client):
        fields = form.read(await form.send(client, turns), False)
        turns += [fields.text, f"And to {BOB} or new@mill.example?"]
        if not restart:
            await form.send(client, turns)
    if restart:
        folder = tmp_path / "two"
        async with proxy_with_restore(folder, upstream, id_secrets=(SECRET,)) as (_, client):
            await form.send(client, turns)

    first_data, second = (request.body for request in upstream.requests)
    *_, last_match = PLACEHOLDER.finditer(first_data.decode())
    assert fields == ReceivedTexts(turns[0], {"said": [turns[0]]})
    assert ADA.encode() not in first_data + second
    assert b"desk@mill.example" not in first_data + second
    assert second.startswith(first_data[: last_match.end()])


@for_each("form", FORMS)
async def test_two_keys_share_no_placeholder(
    form: Form, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """A key's placeholders are its own. A placeholder of another key is unchanged."""
    upstream.answer_with(echo(form, streamed=False))
    async with proxy_with_restore(tmp_path / "p", upstream, id_secrets=(SECRET,)) as (_, client):
        await form.send(client, [ADA])
        await form.send(client, [ADA], key=OTHER_KEY)
        item, other_item = (PLACEHOLDER.findall(r.body.decode()) for r in upstream.requests)
        upstream.answer_with(form.script([" ".join(item)], ["{}"], streamed=False))
        fields = form.read(await form.send(client, [ADA], key=OTHER_KEY), False)

    assert not set(item) & set(other_item)
    assert fields.text == " ".join(item)


@for_each("streamed", [False, True])
@for_each("form", FORMS)
async def test_older_placeholder_is_restored_with_its_value(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echo(form, streamed=False))
    async with proxy_with_restore(tmp_path / "p", upstream) as (_, client):
        await form.send(client, [ADA])
        placeholder = last_text(upstream.requests[-1])
        upstream.answer_with(form.script([placeholder], ["{}"], streamed=streamed))
        with_value = await form.send(client, [ADA, "Noted.", "Who?"], stream=streamed)
        excluded = await form.send(client, [BOB, "Noted.", "Who?"], stream=streamed)

    assert form.read(with_value, streamed).text == ADA
    assert form.read(excluded, streamed).text == placeholder


@for_each("form", FORMS)
async def test_placeholder_cut_anywhere_is_restored(
    form: Form, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Streams cut texts and tool arguments at the same place."""
    text = f"Write to {ADA}."
    async with proxy_with_restore(tmp_path / "p", upstream) as (_, client):
        for cut in range(len("[EMAIL_bcdfghjkmnpq]") + 1):
            upstream.answer_with(echo(form, streamed=True, cut=cut))
            fields = form.read(await form.send(client, [text], stream=True), True)
            assert fields == ReceivedTexts(text, {"said": [text]}), cut


@for_each("streamed", [False, True])
@for_each("form", FORMS)
async def test_cached_response_is_restored_per_key(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Answers are cached with values, under the key and the unmasked text of the request."""
    cache = "cache: {ttl: 1h, tool_calls: true}"
    upstream.answer_with(echo(form, streamed))
    async with proxy_with_restore(tmp_path / "p", upstream, cache) as (proxy, client):
        calls = [(ADA, {}), (ADA, {}), (BOB, {}), (ADA, {"key": OTHER_KEY})]
        values = [
            form.read(await form.send(client, [text], stream=streamed, **options), streamed).text
            for text, options in calls
        ]
        records = await proxy.sink.wait(len(calls))

    assert values == [ADA, ADA, BOB, ADA]
    assert [record.cache for record in records] == ["miss", "hit", "miss", "miss"]


@for_each("streamed", [False, True])
@for_each("form", FORMS)
async def test_spans_and_log_have_placeholders_only(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    upstream.answer_with(echo(form, streamed))
    log = tmp_path / "log"
    with log.open("wb") as file:
        settings = {"otlp_endpoint": collector.url, "log_fd": file.fileno()}
        capture = "capture: {share: 100%}"
        async with proxy_with_restore(tmp_path / "p", upstream, capture, **settings) as (
            proxy,
            client,
        ):
            fields = form.read(await form.send(client, [ADA], stream=streamed), streamed)
            await proxy.sink.wait()
    spans, [sent_value] = b"".join(collector.bodies), upstream.requests
    collector.bodies.clear()

    assert fields == ReceivedTexts(ADA, {"said": [ADA]})
    assert ADA.encode() not in spans + log.read_bytes()
    assert PLACEHOLDER.findall(sent_value.body.decode())[-1].encode() in spans


@for_each("streamed", [False, True])
@for_each("form", FORMS)
async def test_each_attempt_sends_the_same_placeholders(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """A call of each dialect that falls back to a chat upstream."""
    chat_form = FORMS[0]
    async with proxy_with_restore(tmp_path / "p", upstream) as (_, client):
        upstream.then(respond({"error": {"message": "busy"}}, 500), echo(chat_form, streamed))
        raw = await form.send(client, [ADA], deployment="resilient", stream=streamed)

    first_item, second = (PLACEHOLDER.findall(r.body.decode()) for r in upstream.requests)
    assert first_item == second
    assert form.read(raw, streamed) == ReceivedTexts(ADA, {"said": [ADA]})


def thinking(form: Form, request: ReceivedRequest, streamed: bool) -> Any:
    """Respond with a signed thought that repeats the last turn."""
    thought = f"They wrote: {last_text(request)}"
    if form.name == "messages":
        sealed = {"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}
        started = {"type": "thinking", "thinking": "", "signature": ""}
        parts = (thought[:20], thought[20:])
        deltas: list[Json] = [{"type": "thinking_delta", "thinking": part} for part in parts]
        deltas.append({"type": "signature_delta", "signature": "c2lnbmVk"})
        events = message_events(block_events(0, started, *deltas), text_events(1, "Fine."))
        return stream(events, is_done=False) if streamed else respond(message(sealed, FINE))
    summary = [{"type": "summary_text", "text": thought}]
    item = {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "c2VhbGVk"}
    document = response(item, text_item("Fine."))
    ended = [
        {"type": f"response.output_item.{when}", "output_index": 0, "item": item}
        for when in ("added", "done")
    ]
    values = item_events(1, text_item("Fine."), "Fine.")
    events = response_events(ended, values, document=document)
    return stream(events, is_done=False) if streamed else respond(document)


def returned(form: Form, raw: bytes, streamed: bool) -> list[Json]:
    """Return what a client sends back of a response."""
    if form.name == "messages":
        document = accumulated(events_of(raw)) if streamed else json.loads(raw)
        return [{"role": "assistant", "content": document["content"]}]
    items: list[Json] = (accumulated_response(raw) if streamed else json.loads(raw))["output"]
    return items


@for_each("streamed", [False, True])
@for_each("form", FORMS[1:])
async def test_signed_thought_returns_unchanged(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The client sees placeholders in a thought, with its signature."""

    async def think(request: ReceivedRequest, wire: Wire) -> None:
        await thinking(form, request, streamed)(request, wire)

    upstream.answer_with(think)
    field = "messages" if form.name == "messages" else "input"
    async with proxy_with_restore(tmp_path / "p", upstream) as (_, client):
        raw = await form.send(client, [ADA], stream=streamed)
        history = [*form.body([ADA])[field], *returned(form, raw, streamed)]
        history.append({"role": "user", "content": "Go on."})
        options: Json = {field: history}
        await form.send(client, [], stream=streamed, **options)

    first_asked, second = upstream.requests
    thought = f"They wrote: {last_text(first_asked)}"
    blocks = second.json[field][1]
    block = blocks["content"][0] if form.name == "messages" else blocks
    assert PLACEHOLDER.search(thought)
    assert thought in (block.get("thinking"), *(item["text"] for item in block.get("summary", ())))
    assert block.get("signature", block.get("encrypted_content")) in ("c2lnbmVk", "c2VhbGVk")
    *_, last_match = PLACEHOLDER.finditer(first_asked.body.decode())
    assert second.body.startswith(first_asked.body[: last_match.end()])
