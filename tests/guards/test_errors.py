"""Output guards inspect the error messages of upstreams."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.errors import BlockedByUpstream, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from proxy.guards.run import list_upstream_texts, redact_upstream_texts, remove_upstream_texts
from proxy.telemetry.log import build_call_line
from tests.conftest import Proxy
from tests.doubles import Script, ScriptedUpstream, chat_events, legacy_completion, respond, stream
from tests.guards.calls import EMAIL, ask, decision_metric, verdicts
from tests.guards.conftest import Guard

BLOCK = "output: [{guard: keywords, words: [hippo]}]"
MASK = "output: [{guard: pii, entities: [email], action: mask, fields: [content]}]"
BLOCK_CONTENT = "output: [{guard: keywords, words: [hippo], fields: [content]}]"
WITHHELD = "The upstream rejected the request as invalid (status 400)."
PRESIDIO = "{guard: presidio, url: 'http://127.0.0.1:9', entities: [PERSON]}"
FLAG = "output: [{guard: keywords, words: [hippo], action: flag}]"
STREAMED = pytest.mark.parametrize("streamed", [False, True])


def refusal(message: str, **options: Any) -> Script:
    return respond({"error": {"message": message, "type": "invalid_request_error", **options}}, 400)


async def explanation(proxy: Proxy, record: Any) -> str:
    return await proxy.read(f"/explain/{record.head.request_id}")


@STREAMED
@pytest.mark.parametrize(
    ("guards", "message", "output"),
    [
        (BLOCK, "No hippo here.", WITHHELD),
        (MASK, f"No {EMAIL} here.", "No [EMAIL] here."),
        (MASK, "No.", "No."),
        (FLAG, "No hippo here.", "No hippo here."),
    ],
)
async def test_error_message_is_inspected(
    guards: str, message: str, output: str, streamed: bool, guard: Guard
) -> None:
    proxy = await guard(guards, refusal(message))

    reply = await ask(proxy, "A question", stream=streamed)

    [record] = await proxy.sink.wait()
    explained = await explanation(proxy, record)
    assert (reply.status, reply.error["message"]) == (400, output)
    assert message not in explained
    assert "upstream_refused, upstream status 400" in explained


CAPTURE = "capture: {{share: 100%, fields: {}}}"


@STREAMED
@pytest.mark.parametrize(
    ("policy", "is_captured"),
    [
        (CAPTURE.format("[input, output]"), True),
        (CAPTURE.format("[input]"), False),
        (CAPTURE.format("[output]"), False),
        (FLAG, False),
    ],
)
async def test_error_message_is_logged_only_if_captured(
    policy: str, is_captured: bool, streamed: bool, guard: Guard, upstream: ScriptedUpstream
) -> None:
    quoted = {"error": {"message": f"No: a secret of {EMAIL}", "type": "t", "code": "c"}}
    statuses = (400, 401, 404, 413, 422, 429, 500, 503, 529)
    scripts = [respond(quoted, status) for status in statuses]
    proxy = await guard(policy)
    for script in [*scripts, stream([quoted])] if streamed else scripts:
        upstream.answer_with(script)
        reply = await ask(proxy, "a secret", stream=streamed)
        [record] = await proxy.sink.wait()
        line = build_call_line(record)
        explained = await explanation(proxy, record)
        proxy.sink.forget()

        output = "No: a secret of [EMAIL]" if is_captured and b"a secret" in reply.raw else None
        assert (line["upstream_error_text"], line["error"] is None) == (output, False)
        assert "secret" not in explained + str({**line, "upstream_error_text": None})


async def test_blocked_code_and_param_are_dropped(guard: Guard) -> None:
    proxy = await guard(BLOCK, refusal("No.", code="hippo", param="a hippo"))

    reply = await ask(proxy, "A question")

    assert (reply.status, b"hippo" in reply.raw) == (400, False)
    assert reply.error["code"] == "upstream_refused"


@pytest.mark.parametrize(
    ("guards", "expected"),
    [
        (BLOCK, {"keywords": "blocked"}),
        (MASK, {"pii": "masked"}),
        (FLAG, {}),
        (f"output: [{PRESIDIO}]", {"presidio": "not_applicable"}),
        (f"{BLOCK[:-1]}, {PRESIDIO}]", {"keywords": "blocked", "presidio": "not_applicable"}),
    ],
)
async def test_results_for_an_error_are_recorded(
    guards: str, expected: dict[str, str], guard: Guard
) -> None:
    proxy = await guard(guards, refusal(f"No hippo here, {EMAIL}."))

    await ask(proxy, "A question")

    [record] = await proxy.sink.wait()
    logged = build_call_line(record)["guards"]
    metrics = await proxy.metrics()
    assert {item["guard"]: item["verdict"] for item in logged} == expected
    assert {item["stage"] for item in logged} <= {"output"}
    assert all(decision_metric(name, "output", expected[name]) in metrics for name in expected)


async def test_error_event_is_inspected(guard: Guard) -> None:
    error = {"error": {"message": "No hippo here.", "code": 400}}
    proxy = await guard(BLOCK, stream([chat_events("Hello")[0], error]))

    assert b"hippo" not in (await ask(proxy, "A question", stream=True)).raw


SEVERAL = {"model": ["first", "second"], "prompt": "A question"}


@pytest.mark.parametrize(
    ("guards", "output", "expected"),
    [
        (BLOCK, WITHHELD, ["passed", "blocked"]),
        (BLOCK_CONTENT, WITHHELD, ["passed", "blocked"]),
        (MASK, "No hippo here, [EMAIL].", ["passed", "masked"]),
        (FLAG, f"No hippo here, {EMAIL}.", ["passed"]),
    ],
)
async def test_error_of_one_of_several_models_is_inspected(
    guards: str, output: str, expected: list[str], guard: Guard, upstream: ScriptedUpstream
) -> None:
    failed = refusal(f"No hippo here, {EMAIL}.")
    upstream.by_model = {"first": failed, "second": respond(legacy_completion(" two"))}
    proxy = await guard(guards)

    reply = await proxy.send("/v1/completion", SEVERAL)

    [record] = await proxy.sink.wait()
    failed_choice, choice = reply.json["choices"]
    assert reply.status == 200
    assert (failed_choice["text"], failed_choice["finish_reason"]) == ("", "error")
    assert failed_choice["error"] == {"message": output, "code": "upstream_refused"}
    assert (choice["text"], "error" in choice) == (" two", False)
    assert verdicts(record, "output") == expected


async def test_error_of_all_models_is_one_text(guard: Guard) -> None:
    proxy = await guard(BLOCK_CONTENT, refusal("No hippo here."))

    reply = await proxy.send("/v1/completion", SEVERAL)

    [record] = await proxy.sink.wait()
    assert (reply.status, reply.error["message"]) == (400, WITHHELD)
    assert verdicts(record, "output") == ["blocked"]


def test_own_message_is_not_inspected() -> None:
    timeout = UpstreamTimeout("idle")

    remove_upstream_texts(timeout)

    assert list_upstream_texts(timeout) == []
    assert timeout.message == "The upstream timed out (idle timeout)."


def test_withheld_message_leaves_the_error() -> None:
    refused = UpstreamRejected(upstream_status=422, param="hippo")
    refused.set_api_error("a", "b", "a hippo")
    denied = BlockedByUpstream(upstream_status=446).set_api_error(None, None, "a hippo")
    busy = UpstreamUnavailable(upstream_status=429).set_api_error(None, "b", "a hippo")

    for error in (refused, denied, busy):
        assert list_upstream_texts(error)[0].text == "a hippo"
        remove_upstream_texts(error)
        assert error.message == error.own_message
        assert "hippo" not in f"{error!r} {error} {error.param}"
    redact_upstream_texts(denied, {("error", "message"): "so"})
    assert denied.message == "so"
