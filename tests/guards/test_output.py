"""What is masked for an upstream comes back to the client, and to nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.doubles import ScriptedUpstream, answer, chat, chat_events, stream
from tests.guards.echoes import echoing, shown
from tests.guards.test_run import ask, guarded
from tests.test_pipeline import BEARER

EMAIL = "jane@example.com"
NAME = 'Ann "Weir" é'
PROMPT = f"Write to {EMAIL} and {NAME}, [[sic]], then to {EMAIL} again. ["
PII = "{guard: pii, entities: [email], action: mask, restore: true}"
NAMES = f"{{guard: keywords, words: ['{NAME}'], action: mask, restore: true}}"
INPUT = f"input: [{PII}, {NAMES}]"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 11, 500])
async def test_the_upstream_sees_placeholders_and_the_client_its_values_streamed(
    size: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echoing(size))
    async with guarded(tmp_path, upstream, INPUT) as (proxy, client):
        status, raw, _ = await ask(client, PROMPT, stream=True)
        [record] = await proxy.sink.wait()

    assert status == 200
    [request] = upstream.requests
    assert EMAIL.encode() not in request.body
    assert b"Weir" not in request.body
    text, arguments = shown(raw)
    assert text == PROMPT
    assert json.loads(arguments) == {"said": [PROMPT]}
    assert raw.rstrip().endswith(b"data: [DONE]")
    assert {result.verdict for _, result in record.guard_results()} == {"masked"}
    assert record.billing.tokens.total == 8


async def test_a_whole_answer_has_its_values_back(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echoing())
    async with guarded(tmp_path, upstream, INPUT) as (_, client):
        _, raw, _ = await ask(client, PROMPT)

    text, arguments = shown(raw)
    assert (text, json.loads(arguments)) == (PROMPT, {"said": [PROMPT]})


async def test_a_placeholder_that_was_never_sent_is_not_restored(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    fields = "[EMAIL_bcdfghjkmnpq] and [EMAIL_1_00000000]"
    upstream.answer_with(answer(chat(fields)))
    async with guarded(tmp_path, upstream, INPUT) as (_, client):
        _, _, reply = await ask(client, PROMPT)

    assert reply["choices"][0]["message"]["content"] == fields


async def test_guards_of_the_answer_look_before_values_are_put_back(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echoing())
    output = "output: [{guard: pii, entities: [email], action: block}]"
    async with guarded(tmp_path, upstream, f"{INPUT}, {output}") as (proxy, client):
        status, raw, _ = await ask(client, PROMPT, stream=True)
        [record] = await proxy.sink.wait()

    assert (status, shown(raw)[0]) == (200, PROMPT)
    assert [r.verdict for stage, r in record.guard_results() if stage == "output"] == ["passed"]


async def test_both_ways_through_windows_leave_what_was_said(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echoing(2))
    output = "output: [{guard: keywords, words: [again], action: mask}]"
    async with guarded(tmp_path, upstream, f"{INPUT}, {output}") as (_, client):
        _, raw, _ = await ask(client, PROMPT, stream=True)

    assert shown(raw)[0] == PROMPT.replace("again", "[WORD]")


async def test_a_stream_that_breaks_off_shows_all_that_was_clear(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text = f"{EMAIL} [["
    upstream.answer_with(echoing(1, cut=True))
    async with guarded(tmp_path, upstream, INPUT) as (proxy, client):
        messages = [{"role": "user", "content": text}]
        body = {"model": "search-answers", "messages": messages, "stream": True}
        async with client.post("/v1/chat/completions", headers=BEARER, json=body) as response:
            raw = await response.read()
        [record] = await proxy.sink.wait()

    assert shown(raw)[0] == text
    assert record.outcome == "upstream_error"


async def test_no_value_is_on_record_or_in_metrics(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echoing())
    async with guarded(tmp_path, upstream, INPUT) as (proxy, client):
        await ask(client, PROMPT, stream=True)
        [record] = await proxy.sink.wait()
        async with client.get(f"{proxy.admin}/metrics") as response:
            metrics = await response.text()
        everything = f"{record.guard_results()} {metrics} {proxy.log}"

    assert "masked" in everything
    assert EMAIL not in everything
    assert "Weir" not in everything


async def test_what_is_kept_is_what_was_shown_for_what_was_sent(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echoing())
    guards = f"{INPUT}, cache: {{ttl: 1h, tool_calls: true}}"
    async with guarded(tmp_path, upstream, guards) as (proxy, client):
        texts = []
        for email in (EMAIL, EMAIL, "john@example.com"):
            _, raw, _ = await ask(client, f"Write to {email}")
            texts.append(shown(raw)[0])
        records = await proxy.sink.wait(3)

    assert texts == [f"Write to {EMAIL}"] * 2 + ["Write to john@example.com"]
    assert [record.cache for record in records] == ["miss", "hit", "miss"]


async def test_without_findings_a_stream_passes_as_it_came(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(chat_events("a [", "[b", " c")))
    async with guarded(tmp_path, upstream, INPUT) as (_, client):
        _, raw, _ = await ask(client, "Hi", stream=True)

    assert shown(raw)[0] == "a [[b c"
