"""Placeholders that are the same in every call of a key, and the values that come back for them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.conftest import Proxy, running_proxy, world
from tests.dialects.test_responses import accumulated as accumulated_response
from tests.dialects.vendors.test_anthropic import accumulated, events_of
from tests.doubles import (
    Asked,
    Json,
    ScriptedUpstream,
    Wire,
    answer,
    block_events,
    item_events,
    message,
    message_events,
    response,
    response_events,
    stream,
    text_events,
    text_item,
)
from tests.for_each import for_each
from tests.guards.conversations import FORMS, PLACEHOLDER, Form, Said
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
async def restoring(
    folder: Path, upstream: ScriptedUpstream, more: str = "", **settings: Any
) -> AsyncIterator[tuple[Proxy, aiohttp.ClientSession]]:
    reach = "deployments: [search-answers, responses-only, via-anthropic]"
    policies = world(upstream.url).replace("deployments: [search-answers]", reach)
    policies += f"{POLICY}    {more}\n"
    async with (
        running_proxy(folder, policies, **settings) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        yield proxy, client


def echo(form: Form, streamed: bool, cut: int | None = None) -> Any:
    """Answer with the text of the last turn and with a tool's argument of the same text. Pieces of
    a stream end ``cut`` characters into its first placeholder."""

    async def script(asked: Asked, wire: Wire) -> None:
        text = last_text(asked)
        arguments = json.dumps({"said": [text]})
        pieces = [divided(each, cut) for each in (text, arguments)]
        await form.script(*pieces, streamed=streamed)(asked, wire)

    return script


def last_text(asked: Asked) -> str:
    """Return the text of the last turn as the upstream has it."""
    body = asked.json
    return str((body.get("messages") or body["input"])[-1]["content"])


def divided(text: str, cut: int | None) -> list[str]:
    found = PLACEHOLDER.search(text)
    if cut is None or found is None:
        return [text]
    at = found.start() + cut
    return [text[:at], text[at:]]


@for_each("restart", [False, True], ids=["same process", "another replica"])
@for_each("form", FORMS)
async def test_next_turn_begins_with_the_same_bytes(
    form: Form, restart: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The provider's prompt cache matches all that the first request said."""
    upstream.answer_with(echo(form, streamed=False))
    turns = [f"Write to {ADA}, not to {BOB}."]
    async with restoring(tmp_path / "one", upstream, id_secrets=(SECRET,)) as (_, client):
        said = form.read(await form.send(client, turns), False)
        turns += [said.text, f"And to {BOB} or new@mill.example?"]
        if not restart:
            await form.send(client, turns)
    if restart:
        async with restoring(tmp_path / "two", upstream, id_secrets=(SECRET,)) as (_, client):
            await form.send(client, turns)

    first, second = (request.body for request in upstream.requests)
    *_, last = PLACEHOLDER.finditer(first.decode())
    assert said == Said(turns[0], {"said": [turns[0]]})
    assert ADA.encode() not in first + second
    assert b"desk@mill.example" not in first + second
    assert second.startswith(first[: last.end()])


@for_each("form", FORMS)
async def test_two_keys_share_no_placeholder(
    form: Form, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Each key's value is masked by its own placeholder, and one of another key stays."""
    upstream.answer_with(echo(form, streamed=False))
    async with restoring(tmp_path / "p", upstream, id_secrets=(SECRET,)) as (_, client):
        await form.send(client, [ADA])
        await form.send(client, [ADA], key=OTHER_KEY)
        one, other = (PLACEHOLDER.findall(each.body.decode()) for each in upstream.requests)
        upstream.answer_with(form.script([" ".join(one)], ["{}"], streamed=False))
        said = form.read(await form.send(client, [ADA], key=OTHER_KEY), False)

    assert not set(one) & set(other)
    assert said.text == " ".join(one)


@for_each("streamed", [False, True])
@for_each("form", FORMS)
async def test_placeholder_of_an_older_turn_is_restored_where_the_call_has_its_value(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echo(form, streamed=False))
    async with restoring(tmp_path / "p", upstream) as (_, client):
        await form.send(client, [ADA])
        placeholder = last_text(upstream.requests[-1])
        upstream.answer_with(form.script([placeholder], ["{}"], streamed=streamed))
        with_value = await form.send(client, [ADA, "Noted.", "Who?"], stream=streamed)
        without = await form.send(client, [BOB, "Noted.", "Who?"], stream=streamed)

    assert form.read(with_value, streamed).text == ADA
    assert form.read(without, streamed).text == placeholder


@for_each("form", FORMS)
async def test_a_placeholder_cut_anywhere_is_restored(
    form: Form, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """In texts and in arguments of tools, which streams cut at the same place."""
    text = f"Write to {ADA}."
    async with restoring(tmp_path / "p", upstream) as (_, client):
        for cut in range(len("[EMAIL_bcdfghjkmnpq]") + 1):
            upstream.answer_with(echo(form, streamed=True, cut=cut))
            said = form.read(await form.send(client, [text], stream=True), True)
            assert said == Said(text, {"said": [text]}), cut


@for_each("form", FORMS)
async def test_a_path_cut_anywhere_is_restored_with_its_backslashes(
    form: Form, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """In texts and in arguments of tools, where each backslash is written twice."""
    text = rf"C:\users\{ADA}\x \\files\{BOB}\y CORP\{ADA}"
    async with restoring(tmp_path / "p", upstream) as (_, client):
        for cut in range(-6, len("[EMAIL_bcdfghjkmnpq]") + 4):
            upstream.answer_with(echo(form, streamed=True, cut=cut))
            said = form.read(await form.send(client, [text], stream=True), True)
            assert said == Said(text, {"said": [text]}), cut


@for_each("streamed", [False, True])
@for_each("form", FORMS)
async def test_a_cached_answer_is_restored_for_its_own_key_only(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Answers are cached with values, under the key and the unmasked text of the request."""
    cache = "cache: {ttl: 1h, tool_calls: true}"
    upstream.answer_with(echo(form, streamed))
    async with restoring(tmp_path / "p", upstream, cache) as (proxy, client):
        calls = [(ADA, {}), (ADA, {}), (BOB, {}), (ADA, {"key": OTHER_KEY})]
        said = [
            form.read(await form.send(client, [text], stream=streamed, **more), streamed).text
            for text, more in calls
        ]
        records = await proxy.sink.wait(len(calls))

    assert said == [ADA, ADA, BOB, ADA]
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
        async with restoring(tmp_path / "p", upstream, capture, **settings) as (proxy, client):
            said = form.read(await form.send(client, [ADA], stream=streamed), streamed)
            await proxy.sink.wait()
    spans, [sent] = b"".join(collector.bodies), upstream.requests
    collector.bodies.clear()

    assert said == Said(ADA, {"said": [ADA]})
    assert ADA.encode() not in spans + log.read_bytes()
    assert PLACEHOLDER.findall(sent.body.decode())[-1].encode() in spans


@for_each("streamed", [False, True])
@for_each("form", FORMS)
async def test_each_attempt_sends_the_same_placeholders(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """A call that falls over to a chat of another upstream, from each dialect."""
    chat_form = FORMS[0]
    async with restoring(tmp_path / "p", upstream) as (_, client):
        upstream.then(answer({"error": {"message": "busy"}}, 500), echo(chat_form, streamed))
        raw = await form.send(client, [ADA], deployment="resilient", stream=streamed)

    first, second = (PLACEHOLDER.findall(each.body.decode()) for each in upstream.requests)
    assert first == second
    assert form.read(raw, streamed) == Said(ADA, {"said": [ADA]})


def thinking(form: Form, asked: Asked, streamed: bool) -> Any:
    """Answer with a thought that repeats the last turn, as its provider seals it."""
    thought = f"They wrote: {last_text(asked)}"
    if form.name == "messages":
        sealed = {"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}
        begun = {"type": "thinking", "thinking": "", "signature": ""}
        deltas: list[Json] = [
            {"type": "thinking_delta", "thinking": each} for each in (thought[:20], thought[20:])
        ]
        deltas.append({"type": "signature_delta", "signature": "c2lnbmVk"})
        events = message_events(block_events(0, begun, *deltas), text_events(1, "Fine."))
        return stream(events, is_done=False) if streamed else answer(message(sealed, FINE))
    summary = [{"type": "summary_text", "text": thought}]
    item = {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "c2VhbGVk"}
    whole = response(item, text_item("Fine."))
    ended = [
        {"type": f"response.output_item.{when}", "output_index": 0, "item": item}
        for when in ("added", "done")
    ]
    said = item_events(1, text_item("Fine."), "Fine.")
    events = response_events(ended, said, document=whole)
    return stream(events, is_done=False) if streamed else answer(whole)


def returned(form: Form, raw: bytes, streamed: bool) -> list[Json]:
    """Return what a client sends back of an answer."""
    if form.name == "messages":
        whole = accumulated(events_of(raw)) if streamed else json.loads(raw)
        return [{"role": "assistant", "content": whole["content"]}]
    items: list[Json] = (accumulated_response(raw) if streamed else json.loads(raw))["output"]
    return items


@for_each("streamed", [False, True])
@for_each("form", FORMS[1:])
async def test_a_signed_thought_comes_back_to_its_provider_as_it_was(
    form: Form, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The client sees placeholders in a thought, with its signature."""

    async def think(asked: Asked, wire: Wire) -> None:
        await thinking(form, asked, streamed)(asked, wire)

    upstream.answer_with(think)
    field = "messages" if form.name == "messages" else "input"
    async with restoring(tmp_path / "p", upstream) as (_, client):
        raw = await form.send(client, [ADA], stream=streamed)
        history = [*form.body([ADA])[field], *returned(form, raw, streamed)]
        history.append({"role": "user", "content": "Go on."})
        more: Json = {field: history}
        await form.send(client, [], stream=streamed, **more)

    first, second = upstream.requests
    thought = f"They wrote: {last_text(first)}"
    blocks = second.json[field][1]
    block = blocks["content"][0] if form.name == "messages" else blocks
    assert PLACEHOLDER.search(thought)
    assert thought in (block.get("thinking"), *(each["text"] for each in block.get("summary", ())))
    assert block.get("signature", block.get("encrypted_content")) in ("c2lnbmVk", "c2VhbGVk")
    *_, last = PLACEHOLDER.finditer(first.body.decode())
    assert second.body.startswith(first.body[: last.end()])
