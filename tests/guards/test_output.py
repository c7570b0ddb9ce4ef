"""Values masked for an upstream are restored for the client, and for nobody else."""

from __future__ import annotations

import pytest

from tests.doubles import ScriptedUpstream
from tests.guards.calls import ask
from tests.guards.conftest import Guard
from tests.guards.echoes import echoing, shown

EMAIL = "jane@example.com"
NAME = 'Ann "Weir" é'
PROMPT = f"Write to {EMAIL} and {NAME}, [[sic]], then to {EMAIL} again. ["
PII = "{guard: pii, entities: [email], action: mask, restore: true}"
NAMES = f"{{guard: keywords, words: ['{NAME}'], action: mask, restore: true}}"
INPUT = f"input: [{PII}, {NAMES}]"


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
