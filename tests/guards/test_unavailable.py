"""A guard that could not be asked in time: 503 in the client's dialect, which calls no text bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles import ScriptedUpstream, hang
from tests.guards.test_services import WORD, guarded, served
from tests.test_pipeline import ROUTES

SLOW = ", deadline: 100ms, message: Please say no such word."
WAYS = [
    (name, stage, streamed)
    for name, route in ROUTES.items()
    for stage in ("input", "output")
    for streamed in (False, True)
    if not streamed or route.streams
]


@pytest.mark.sockets
@pytest.mark.parametrize(("name", "stage", "streamed"), WAYS)
async def test_a_guard_that_is_late_is_away_in_every_dialect(
    name: str, stage: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    upstream.answer_with(served(streamed, "A horse."))
    async with guarded(tmp_path, upstream, "webhook", SLOW, stage) as place:
        place.elsewhere.answer_with(hang())
        body = route.body(streamed=streamed)
        async with place.client.post(route.path, json=body, headers=route.credential) as response:
            reply, text = await response.json(), await response.text()

    assert (response.status, response.headers["x-headrace-error"]) == (503, "guard_unavailable")
    assert int(response.headers["retry-after"]) >= 1
    if name == "anthropic":
        assert reply["error"].keys() == {"type", "message"}
        assert reply["error"]["type"] == "api_error"
    else:
        assert reply["error"]["type"] == "server_error"
        assert reply["error"]["code"] == "guard_unavailable"
        assert reply["error"]["guard"] == {"name": "webhook", "kind": "could_not_check"}
    assert "Please" not in text
    assert "blocked" not in text
    assert WORD not in text


async def test_a_policy_that_is_open_lets_such_a_call_pass(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES["portkey-chat"]
    upstream.answer_with(served(False, "A horse."))
    async with guarded(tmp_path, upstream, "webhook", f"{SLOW}, on_error: open") as place:
        place.elsewhere.answer_with(hang())
        body = route.body(streamed=False)
        async with place.client.post(route.path, json=body, headers=route.credential) as response:
            status = response.status
        [record] = await place.proxy.sink.wait(1)

    assert status == 200
    assert [(item.verdict, item.error) for _, item in record.guard_results()] == [
        ("failed", "deadline")
    ]
