"""An answer whose content is a list of parts says the same when it is given again, in whatever form
it came, is asked for and is read."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from tests.adversary.test_cut_lists_of_parts import CLIENTS
from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream, answer
from tests.recipes.provider_answers import MISTRAL_THINKING, streamed
from tests.test_pipeline import BEARER

POLICY = "\npolicies:\n  default: {match: all, cache: {ttl: 1h}}\n"


@pytest.mark.parametrize("again", [True, False], ids=["to a stream", "to a whole"])
@pytest.mark.parametrize("first", [True, False], ids=["from a stream", "from a whole"])
@pytest.mark.parametrize("asked", CLIENTS)
async def test_it_says_all_of_it_again(
    asked: str, first: bool, again: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    each = MISTRAL_THINKING
    path, body = CLIENTS[asked]
    shown: list[str] = []
    kept: list[str] = []
    async with (
        running_proxy(tmp_path / "p", world(upstream.url) + POLICY) as proxy,
        aiohttp.ClientSession(base_url=proxy.url, headers=BEARER) as client,
    ):
        for stream in (first, again, again):
            upstream.answer_with(streamed(each) if stream else answer(each.whole))
            asking = {"model": "search-answers", "stream": stream, **body}
            async with client.post(path, json=asking) as response:
                shown.append(await response.text())
                kept.append(response.headers["x-headrace-cache"])

    assert kept[-1] == "hit"
    assert len(upstream.requests) == (2 if asked == "responses" and first != again else 1)
    for words in ("France ha", "s one capital.", " Par", "is."):
        assert all(words in text for text in shown)
