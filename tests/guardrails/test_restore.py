"""Placeholders that are the same in every call of a key, and the values that come back for them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.conftest import Proxy, running_proxy, world
from tests.doubles import Asked, ScriptedUpstream, Wire, answer
from tests.emit.collector import Collector
from tests.for_each import for_each
from tests.guardrails.conversations import FORMS, PLACEHOLDER, Form, Said

ADA, BOB = "ada@mill.example", "bob@mill.example"
OTHER_KEY = "hr-search-key"
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
