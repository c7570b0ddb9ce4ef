"""A response in which a name occurs twice is refused: readers differ on which one counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import running_proxy, world
from tests.doubles import Asked, ScriptedUpstream, Wire, answer, head
from tests.test_pipeline import BEARER

WORD = "Hydropolis"
GUARD = f"{{guard: keywords, words: [{WORD}], action: ACTION}}"
TWICE = {
    "content": '{"choices":[{"index":0,"PART":{"content":"WORD","content":"ok"}}]}',
    "choices": '{"choices":[{"index":0,"PART":{"content":"WORD"}}],'
    '"choices":[{"index":0,"PART":{"content":"ok"}}]}',
    "escaped": '{"choices":[{"index":0,"PART":{"c\\u006fntent":"WORD","content":"ok"}}]}',
    "part": '{"choices":[{"index":0,"PART":{"content":"WORD"},"PART":{"content":"ok"}}]}',
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("action", ["block", "mask", "flag"])
@pytest.mark.parametrize("name", TWICE)
async def test_a_repeated_name_is_refused(
    name: str, action: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text = TWICE[name].replace("PART", "delta" if streamed else "message").replace("WORD", WORD)

    async def events(request: Asked, wire: Wire) -> None:
        event = f"data: {text}\n\ndata: [DONE]\n\n".encode()
        await wire.send(head(200, "text/event-stream", f"content-length: {len(event)}") + event)

    upstream.answer_with(events if streamed else answer(text.encode()))
    rules = f"output: [{GUARD.replace('ACTION', action)}]"
    policies = f"{world(upstream.url)}\npolicies:\n  default: {{match: all, {rules}}}\n"
    body = {"model": "search-answers", "messages": [{"role": "user", "content": "Hi"}]}
    async with (
        running_proxy(tmp_path / "policies", policies) as proxy,
        proxy.client.post(
            "/v1/chat/completions", headers=BEARER, json={**body, "stream": streamed}
        ) as response,
    ):
        got = await response.text()

    assert WORD not in got
    assert "upstream_invalid_response" in got
