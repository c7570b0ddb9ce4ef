"""No part of a credential of ours passes in what an upstream says, in whatever word of an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.errors import UpstreamFinding, UpstreamRejected
from proxy.telemetry.log import canonical
from proxy.types import Secret, Upstream
from proxy.upstream.own_secrets import conceal, concealed
from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream, answer, legacy_events, stream
from tests.for_each import for_each
from tests.test_pipeline import BEARER

OURS = "sk-upstream-secret"  # what ``world`` gives its upstreams
KEY = "sk-proj-Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0Fe9Dc8Ba7"
OTHER = "Basic QWxhZGRpbjpPcGVuU2VzYW1l"
UPSTREAM = Upstream(
    "openai",
    "openai",
    "http://127.0.0.1:9",
    api_key=Secret(KEY),
    headers=(("x-vault-token", Secret(OTHER)), ("x-title", Secret("Support desk"))),
)
PARTS = [KEY, KEY[:40], KEY[:8], KEY[10:18], KEY[-8:], KEY.lower(), KEY.upper(), OTHER[7:], OTHER]


@for_each("part", PARTS)
@for_each("around", ["{}", "You sent {}.", "({0}) and: {0}", "{}*****"])
def test_parts_of_a_credential_are_stars(part: str, around: str) -> None:
    said = concealed(around.format(part), UPSTREAM)

    assert said == around.format("***")


@for_each("part", PARTS)
def test_a_word_of_an_error_that_holds_a_part_says_nothing(part: str) -> None:
    error = UpstreamRejected("x", upstream_status=400).with_code(part, f"e_{part}_e")
    error.findings = (UpstreamFinding("input", part, True), UpstreamFinding("input", "pii", True))

    conceal(error, UPSTREAM)

    assert (error.upstream_code, error.upstream_type) == (None, None)
    assert [found.detector for found in error.findings] == ["pii"]


@for_each(
    "said",
    ["Your key is of sk-proj", "Support is at the desk", "context_length_exceeded", KEY[:7], ""],
)
def test_what_tells_nothing_of_a_credential_stays(said: str) -> None:
    assert concealed(said, UPSTREAM) == said


def test_another_header_of_ours_is_stars_as_a_whole() -> None:
    assert concealed("to Support desk", UPSTREAM) == "to ***"


ERROR: dict[str, Any] = {"message": f"bad {OURS[:12]}", "type": OURS[:16], "code": f"x.{OURS[3:]}"}


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 429, 500, 503])
@pytest.mark.parametrize("streamed", [False, True])
async def test_no_error_of_an_upstream_brings_a_part_of_our_key_to_the_client_or_the_log(
    status: int, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer({"error": {**ERROR, "param": OURS[:10]}}, status))

    text = await ask(proxy, streamed=streamed)

    [record] = await proxy.sink.wait()
    for words in (text, json.dumps(canonical(record), default=str)):
        assert OURS[:8] not in words
        assert OURS[8:16] not in words.replace("upstream_", "")


@pytest.mark.parametrize("begun", [0, 1])
async def test_hides_streamed_key(begun: int, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream([*legacy_events(" Par")[:begun], {"error": ERROR}]))

    text = await ask(proxy, streamed=True)

    assert OURS[:8] not in text
    assert "-secret" not in text


async def ask(proxy: Proxy, *, streamed: bool) -> str:
    async with (
        ClientSession(base_url=proxy.url, headers=BEARER) as client,
        client.post(
            "/v1/completions", json={"model": "gpt-4o-mini", "prompt": "x", "stream": streamed}
        ) as response,
    ):
        return await response.text()
