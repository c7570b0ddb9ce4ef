"""Values masked for an upstream are restored for the client, and for nobody else."""

from __future__ import annotations

import json

import pytest

from tests.doubles import ScriptedUpstream, answer, chat, chat_events, stream
from tests.guards.calls import ask, verdicts
from tests.guards.conftest import Guard
from tests.guards.echoes import echoing, shown

EMAIL = "jane@example.com"
NAME = 'Ann "Weir" é'
PROMPT = f"Write to {EMAIL} and {NAME}, [[sic]], then to {EMAIL} again. ["
PII = "{guard: pii, entities: [email], action: mask, restore: true}"
NAMES = f"{{guard: keywords, words: ['{NAME}'], action: mask, restore: true}}"
INPUT = f"input: [{PII}, {NAMES}]"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 11, 500])
async def test_values_are_restored_and_never_recorded(
    size: int, guard: Guard, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echoing(size))
    proxy = await guard(INPUT)

    reply = await ask(proxy, PROMPT, stream=bool(size))

    [record], [request] = await proxy.sink.wait(), upstream.requests
    text, arguments = shown(reply.raw)
    assert (reply.status, text, json.loads(arguments)) == (200, PROMPT, {"said": [PROMPT]})
    assert reply.raw.rstrip().endswith(b"data: [DONE]") is bool(size)
    assert set(verdicts(record, "input")) == {"masked"}
    assert record.billing.tokens.total == 8
    recorded = f"{request.body!r} {record.guard_results()} {await proxy.metrics()} {proxy.log}"
    assert EMAIL not in recorded
    assert "Weir" not in recorded


async def test_unknown_placeholder_stays(guard: Guard, upstream: ScriptedUpstream) -> None:
    text = "[EMAIL_bcdfghjkmnpq] and [EMAIL_1_00000000]"
    upstream.answer_with(answer(chat(text)))
    proxy = await guard(INPUT)

    assert shown((await ask(proxy, PROMPT)).raw)[0] == text


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("{guard: pii, entities: [email], action: block}", PROMPT),
        (
            "{guard: keywords, words: [again], action: mask}",
            PROMPT.replace("again", "[WORD]"),
        ),
    ],
)
async def test_output_guards_inspect_placeholders(
    output: str, text: str, guard: Guard, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(echoing(2))
    proxy = await guard(f"{INPUT}, output: [{output}]")

    reply = await ask(proxy, PROMPT, stream=True)

    assert (reply.status, shown(reply.raw)[0]) == (200, text)


async def test_broken_stream_releases_all_it_held(guard: Guard, upstream: ScriptedUpstream) -> None:
    text = f"{EMAIL} [["
    upstream.answer_with(echoing(1, cut=True))
    proxy = await guard(INPUT)

    reply = await ask(proxy, text, stream=True)

    [record] = await proxy.sink.wait()
    assert (shown(reply.raw)[0], record.outcome) == (text, "upstream_error")


async def test_stream_without_placeholders_passes(guard: Guard, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(chat_events("a [", "[b", " c")))
    proxy = await guard(INPUT)

    assert shown((await ask(proxy, "Hi", stream=True)).raw)[0] == "a [[b c"
