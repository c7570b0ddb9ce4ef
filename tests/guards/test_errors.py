"""What an upstream says against a call is shown as an answer is: as guards leave it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.errors import BlockedByUpstream, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from proxy.guards.run import error_texts, rewrite, withhold
from proxy.telemetry.log import canonical
from tests.doubles import Script, ScriptedUpstream, answer, chat_events, legacy, stream
from tests.guards.test_run import ask, guarded
from tests.test_pipeline import BEARER

EMAIL = "jane@example.com"
BLOCK = "output: [{guard: keywords, words: [hippo]}]"
MASK = "output: [{guard: pii, entities: [email], action: mask, fields: [content]}]"
BLOCK_CONTENT = "output: [{guard: keywords, words: [hippo], fields: [content]}]"
WITHHELD = "The upstream rejected the request as invalid (status 400)."
PRESIDIO = "{guard: presidio, url: 'http://127.0.0.1:9', entities: [PERSON]}"
FLAG = "output: [{guard: keywords, words: [hippo], action: flag}]"


def refusal(message: str, **options: Any) -> Script:
    return answer({"error": {"message": message, "type": "invalid_request_error", **options}}, 400)


@pytest.mark.parametrize(
    ("guards", "message", "output"),
    [
        (BLOCK, "No hippo here.", WITHHELD),
        (MASK, f"No {EMAIL} here.", "No [EMAIL] here."),
        (MASK, "No.", "No."),
        (FLAG, "No hippo here.", "No hippo here."),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_guards_look_at_the_error_of_an_upstream(
    guards: str,
    message: str,
    output: str,
    streamed: bool,
    tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:
    upstream.answer_with(refusal(message))
    async with guarded(tmp_path, upstream, guards) as (proxy, client):
        status, _, reply = await ask(client, "A question", stream=streamed)
        [record] = await proxy.sink.wait()
        explained = await _explained(client, proxy.admin, record.head.request_id)

    assert (status, reply["error"]["message"]) == (400, output)
    assert message not in explained
    assert "upstream_refused, upstream status 400" in explained


CAPTURE = "capture: {{share: 100%, fields: {}}}"


@pytest.mark.parametrize(
    ("policy", "is_captured"),
    [
        (CAPTURE.format("[input, output]"), True),
        (CAPTURE.format("[input]"), False),
        (CAPTURE.format("[output]"), False),
        (FLAG, False),
    ],
    ids=["all captured", "requests captured", "responses captured", "nothing captured"],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_messages_of_upstreams_are_logged_only_if_captured(
    streamed: bool, policy: str, is_captured: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    quoted = {"error": {"message": f"No: a secret of {EMAIL}", "type": "t", "code": "c"}}
    scripts = [answer(quoted, status) for status in (400, 401, 404, 413, 422, 429, 500, 503, 529)]
    async with guarded(tmp_path, upstream, policy) as (proxy, client):
        for number, script in enumerate(
            [*scripts, stream([quoted])][: None if streamed else -1], 1
        ):
            upstream.answer_with(script)
            status, body, _ = await ask(client, "a secret", stream=streamed)
            record = (await proxy.sink.wait(number))[-1]
            line = canonical(record)
            explained = await _explained(client, proxy.admin, record.head.request_id)

            output = "No: a secret of [EMAIL]" if is_captured and b"a secret" in body else None
            assert (line["upstream_error_text"], line["error"] is None) == (output, False), status
            assert "secret" not in explained + str({**line, "upstream_error_text": None}), status


async def test_short_words_that_a_guard_does_not_let_pass_are_left_out(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(refusal("No.", code="hippo", param="a hippo"))
    async with guarded(tmp_path, upstream, BLOCK) as (_, client):
        status, body, reply = await ask(client, "A question")

    assert status == 400
    assert b"hippo" not in body
    assert reply["error"]["code"] == "upstream_refused"


@pytest.mark.parametrize(
    ("guards", "verdicts"),
    [
        (BLOCK, {"keywords": "blocked"}),
        (MASK, {"pii": "masked"}),
        (FLAG, {}),
        (f"output: [{PRESIDIO}]", {"presidio": "not_applicable"}),
        (f"{BLOCK[:-1]}, {PRESIDIO}]", {"keywords": "blocked", "presidio": "not_applicable"}),
    ],
)
async def test_what_guards_say_of_an_error_is_told(
    guards: str, verdicts: dict[str, str], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(refusal(f"No hippo here, {EMAIL}."))
    async with guarded(tmp_path, upstream, guards) as (proxy, client):
        await ask(client, "A question")
        [record] = await proxy.sink.wait()
        async with client.get(f"{proxy.admin}/metrics") as response:
            metrics = await response.text()

    logged = canonical(record)["guards"]
    assert {item["guard"]: item["verdict"] for item in logged} == verdicts
    assert {item["stage"] for item in logged} <= {"output"}
    for guard, verdict in verdicts.items():
        labels = f'guard="{guard}",shadow="false",stage="output",verdict="{verdict}"'
        assert f"headrace_guard_decisions_total{{{labels}}} 1.0" in metrics


async def test_an_error_in_a_stream_is_looked_at_too(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    events = chat_events("Hello")[:1]
    upstream.answer_with(stream([*events, {"error": {"message": "No hippo here.", "code": 400}}]))
    async with guarded(tmp_path, upstream, BLOCK) as (_, client):
        _, body, _ = await ask(client, "A question", stream=True)

    assert b"hippo" not in body


async def ask_several(client: aiohttp.ClientSession) -> tuple[int, dict[str, Any]]:
    body = {"model": ["first", "second"], "prompt": "A question"}
    async with client.post("/v1/completion", headers=BEARER, json=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("guards", "output", "verdicts"),
    [
        (BLOCK, WITHHELD, ["passed", "blocked"]),
        (BLOCK_CONTENT, WITHHELD, ["passed", "blocked"]),
        (MASK, "No hippo here, [EMAIL].", ["passed", "masked"]),
        (FLAG, f"No hippo here, {EMAIL}.", ["passed"]),
    ],
)
async def test_what_is_said_against_one_model_of_a_list_is_looked_at_as_against_a_call(
    guards: str, output: str, verdicts: list[str], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.by_model = {
        "first": refusal(f"No hippo here, {EMAIL}."),
        "second": answer(legacy(" two")),
    }
    async with guarded(tmp_path, upstream, guards) as (proxy, client):
        status, reply = await ask_several(client)
        [record] = await proxy.sink.wait()

    assert status == 200
    first_value, second = reply["choices"]
    assert (first_value["text"], first_value["finish_reason"]) == ("", "error")
    assert first_value["error"] == {"message": output, "code": "upstream_refused"}
    assert (second["text"], "error" in second) == (" two", False)
    assert [result.verdict for _, result in record.guard_results()] == verdicts


async def test_what_is_said_against_all_models_of_a_list_is_looked_at_once(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(refusal("No hippo here."))
    async with guarded(tmp_path, upstream, BLOCK_CONTENT) as (proxy, client):
        status, reply = await ask_several(client)
        [record] = await proxy.sink.wait()

    assert (status, reply["error"]["message"]) == (400, WITHHELD)
    assert [result.verdict for _, result in record.guard_results()] == ["blocked"]


def test_our_own_words_stay() -> None:
    timeout = UpstreamTimeout("idle")

    assert error_texts(timeout) == []
    withhold(timeout)
    assert timeout.message == "The upstream timed out (idle timeout)."


def test_nothing_of_withheld_words_is_left() -> None:
    refused = UpstreamRejected(upstream_status=422, param="hippo").with_code("a", "b", "a hippo")
    denied = BlockedByUpstream(upstream_status=446).with_code(None, None, "a hippo")
    busy = UpstreamUnavailable(upstream_status=429).with_code(None, "b", "a hippo")

    for error in (refused, denied, busy):
        assert error_texts(error)[0].text == "a hippo"
        withhold(error)
        assert error.message == error.own_message
        assert "hippo" not in f"{error!r} {error} {error.param}"
    rewrite(denied, {("error", "message"): "so"})
    assert denied.message == "so"


async def _explained(client: aiohttp.ClientSession, admin: str, request_id: str) -> str:
    async with client.get(f"{admin}/explain/{request_id}", headers=BEARER) as response:
        return await response.text()
