"""A page of the console that redacts a hostile text delays no call."""

from __future__ import annotations

from pathlib import Path

from tests.adversary.loops import LAG_S, Lag
from tests.conftest import policies_for, running_proxy
from tests.console.test_pages import get_call
from tests.doubles import ScriptedUpstream, answer, chat
from tests.guards.calls import ask

PHONES = "+1 555-0199 " * 8000
CAPTURE = "policies: {default: {match: all, capture: {share: 100%, max_chars: 100000}}}"


async def test_redacting_captured_texts_leaves_the_event_loop_free(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat(PHONES)))
    policies = f"{policies_for(upstream.url)}\n{CAPTURE}\n"
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        assert (await ask(proxy, "Hi")).status == 200
        await proxy.sink.wait()
        with Lag() as lag:
            call = await get_call(proxy, 1)
    assert call["captured"]["response"][0]["text"]
    assert lag.worst < LAG_S
