"""Errors of upstreams, and redaction of credentials in them."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from proxy.errors import UpstreamFinding, UpstreamNotFound, UpstreamRejected
from proxy.errors.words import MAX_ID, MAX_TEXT
from proxy.telemetry.log import build_call_line
from proxy.types import Call, Endpoint, RequestHead, Secret, StateRef, Target, Upstream
from proxy.types.passthrough import PassthroughRequest
from proxy.upstream.errors import (
    MAX_RETRY_AFTER_S,
    MAX_VALUES,
    parse_retry_after,
    read_error,
    reclassify_policy_fault,
    redact_credentials,
    redact_text,
)
from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream, respond
from tests.for_each import for_each

NOW = {"date": "Sat, 31 Jan 2026 12:00:00 GMT"}


@for_each(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": "0"}, None),
        ({"retry-after": "1e9"}, MAX_RETRY_AFTER_S),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "later"}, None),
        ({"retry-after": "Sat, 31 Jan 2026 12:00:30 GMT", **NOW}, 30.0),
        ({"retry-after": "Sat, 31 Jan 2026 11:00:00 GMT", **NOW}, None),
        ({"retry-after": "Sat, 31 Jan 2026 12:00:30 GMT"}, None),
        ({"retry-after": "Sat, 31 Jan 2026 12:00:30 -0000", **NOW}, None),
    ],
)
def test_retry_after_is_bounded(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers) == seconds


class ErrorReply:
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self._pieces = [body, b""]

    async def read(self) -> bytes:
        return self._pieces.pop(0)


async def test_error_contains_no_part_of_our_key() -> None:
    key = "sk-upstream-" + "s" * 40
    upstream = Upstream("openai", "openai", "http://127.0.0.1:9", api_key=Secret(key))
    long = "x" * (MAX_TEXT - 30) + key
    body = orjson.dumps({"error": {"message": long, "param": f"{key} {'p' * 5000}"}})

    error = await read_error(ErrorReply(400, body), upstream)  # type: ignore[arg-type]  # the members that are read

    redact_credentials(error, upstream)

    assert isinstance(error, UpstreamRejected)
    assert "sk-" not in error.message
    assert error.param is not None
    assert "sk-" not in error.param
    assert len(error.param) <= MAX_ID


@for_each(
    ("status", "body", "is_api_error"),
    [
        pytest.param(404, b'{"detail": "Not Found"}', False, id="FastAPI"),
        pytest.param(404,
            b'{"error": {"message": "Not Found", "type": "Not Found", "param": null, "code": 404}}',
            False, id="vLLM"),
        pytest.param(404, b'{"message": "no Route matched with those values"}', False, id="Kong"),
        pytest.param(404,
            b'{"error": {"message": "Invalid URL (POST /v2)", "type": "invalid_request_error"}}',
            False, id="OpenAI"),
        pytest.param(404, b"404 page not found", False, id="Go"),
        pytest.param(404, b'{"error": {"message": "Response not found."}}', True, id="a response"),
        pytest.param(404, b'{"error": {"message": "Not found", "code": "file_not_found"}}', True,
            id="a word for it"),
    ],
)  # fmt: skip
async def test_unknown_path_is_our_fault(status: int, body: bytes, is_api_error: bool) -> None:
    upstream = Upstream("openai", "openai", "http://127.0.0.1:9")

    error = await read_error(ErrorReply(status, body), upstream)  # type: ignore[arg-type]  # as above

    assert isinstance(error, UpstreamRejected)
    assert error.is_api_error == is_api_error


TARGET = Target(Upstream("openai", "openai", "http://127.0.0.1:9"), "gpt-small")
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
FILE_PART = {"type": "file", "file": {"file_id": "file-9"}}
WITH_FILE = {"messages": [{"role": "user", "content": [FILE_PART]}]}
FILES = ("/v1/files", "/v1/files")
PINNED = StateRef("openai", "m", "resp_1", "resp_s")
TOOL = {"type": "object", "properties": {"order_id": {"type": "string"}, "file": {"enum": ["a"]}}}
OWN_NAMES = {
    **CHAT,
    "metadata": {"session_id": "s", "file": "f"},
    "tools": [{"type": "function", "function": {"name": "find", "parameters": TOOL}}],
    "container": None,
    "more": [{"functionCall": {"args": {"order_id": "5"}}}],
}
OF_TOOLS = {"messages": [{"role": "tool", "tool_call_id": "call_1", "content": "x"}]}


def call(
    body: dict[str, Any] = CHAT,
    endpoint: Endpoint = "chat",
    passed_value: tuple[str, str] | None = None,
    pin: StateRef | None = None,
    query: str = "",
) -> Call:
    """Return a call. Passthrough calls have a listed path and a path of the client."""
    route, path = passed_value or ("/v1/chat/completions", "")
    request = None if passed_value is None else PassthroughRequest(path, query)
    head = RequestHead("openai", endpoint, route, "req_1", passthrough=request)
    return Call(head, body, state_ref=pin)


def refused(
    status: int,
    code: str | None = None,
    message: str = "no",
    kind: str | None = None,
    param: str | None = None,
    is_api_error: bool = True,
) -> UpstreamRejected:
    error = UpstreamRejected(message, upstream_status=status, param=param)
    error.is_api_error = is_api_error
    return error.set_api_error(code, kind)


OF_FILE = call({}, "passthrough", ("/v1/files/{file_id}", "/v1/files/file-9"))
POLICY_FAULTS = {
    "unknown path": (refused(404), call()),
    "removed model": (refused(410), call()),
    "ids of tool calls": (refused(404), call(OF_TOOLS)),
    "model in the message": (refused(404, message="gpt-small: none"), call(WITH_FILE)),
    "code of a model": (refused(400, "model_not_found"), call()),
    "type of a model": (refused(400, kind="invalid_model"), call()),
    "ids of the client": (refused(404), call(OWN_NAMES)),
    "balancer without backends": (refused(404, is_api_error=False), call(pin=PINNED)),
    "balancer, and a file": (refused(404, is_api_error=False), call(WITH_FILE)),
    "code of Azure": (refused(404, "DeploymentNotFound"), OF_FILE),
    "path without ids": (
        refused(404), call({}, "passthrough", ("/v1/images/edits", "/v1/images/edits"))
    ),
    "query without ids": (
        refused(404), call({}, "passthrough", FILES, query="limit=2&order=asc")
    ),
    "unsupported conversations": (refused(404), call({}, "conversations")),
    "unsupported stored responses": (
        refused(404, is_api_error=False), call({}, "stored", pin=PINNED)
    ),
}  # fmt: skip
CLIENT_FAULTS = {
    "long prompt": (refused(400, "context_length_exceeded"), call()),
    "deleted file": (refused(404), OF_FILE),
    "deleted file, with the model": (refused(404, message="no gpt-small"), OF_FILE),
    "deleted file of a terse server": (refused(404, is_api_error=False), OF_FILE),
    "deleted response": (refused(404), call({}, "stored", pin=PINNED)),
    "page after a deleted file": (
        refused(404), call({}, "passthrough", FILES, query="limit=2&after=file-9")
    ),
    "file in a chat": (refused(404), call(WITH_FILE)),
    "file in a body": (refused(404), call({"input_file_id": "f"}, "passthrough")),
    "state": (refused(404), call(pin=PINNED)),
    "another model in the body": (
        refused(400, "model_not_found", param="moderation.model"),
        call({**CHAT, "moderation": {"model": "none"}}),
    ),
}  # fmt: skip


@for_each(("error", "call"), POLICY_FAULTS.values(), POLICY_FAULTS)
def test_unknown_model_or_path_is_a_policy_fault(error: UpstreamRejected, call: Call) -> None:
    result = reclassify_policy_fault(error, call, TARGET)

    assert isinstance(result, UpstreamNotFound)
    assert (result.status, result.upstream_status) == (error.status, error.upstream_status)
    assert (result.message, result.upstream_code) == (error.message, error.upstream_code)


@for_each(("error", "call"), CLIENT_FAULTS.values(), CLIENT_FAULTS)
def test_unknown_object_is_a_client_fault(error: UpstreamRejected, call: Call) -> None:
    assert reclassify_policy_fault(error, call, TARGET) is error


def test_error_body_is_read_up_to_a_bound() -> None:
    remainder = {"input": ["x"] * MAX_VALUES, "more": [{"file_id": "f"}]}

    assert isinstance(
        reclassify_policy_fault(refused(404), call(remainder), TARGET), UpstreamNotFound
    )


def test_attributed_error_keeps_findings_and_usage() -> None:
    error = refused(404)
    error.findings = (UpstreamFinding("input", "x", found=True),)
    error.usage = {"prompt_tokens": 3}

    result = reclassify_policy_fault(error, call(), TARGET)

    assert (result.findings, result.usage) == (error.findings, error.usage)


OURS = "sk-upstream-secret"  # the key of upstreams in the default policies
KEY = "sk-proj-Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0Fe9Dc8Ba7"
OTHER_TEXT = "Basic QWxhZGRpbjpPcGVuU2VzYW1l"
UPSTREAM = Upstream(
    "openai",
    "openai",
    "http://127.0.0.1:9",
    api_key=Secret(KEY),
    headers=(("x-vault-token", Secret(OTHER_TEXT)), ("x-title", Secret("Support desk"))),
)
PARTS = [KEY, KEY[:8], KEY[-8:], KEY.lower(), OTHER_TEXT[7:], OTHER_TEXT]


@for_each("part", PARTS)
@for_each("context", ["{}", "You sent {}.", "({0}) and: {0}", "{}*****"])
def test_parts_of_a_credential_are_redacted(part: str, context: str) -> None:
    text = redact_text(context.format(part), UPSTREAM)

    assert text == context.format("***")


@for_each("part", PARTS)
def test_code_containing_a_credential_is_dropped(part: str) -> None:
    error = UpstreamRejected("x", upstream_status=400).set_api_error(part, f"e_{part}_e")
    error.findings = (UpstreamFinding("input", part, True), UpstreamFinding("input", "pii", True))

    redact_credentials(error, UPSTREAM)

    assert (error.upstream_code, error.upstream_type) == (None, None)
    assert [result.detector for result in error.findings] == ["pii"]


@for_each(
    "text",
    ["Your key is of sk-proj", "Support is at the desk", "context_length_exceeded", KEY[:7], ""],
)
def test_other_text_is_not_redacted(text: str) -> None:
    assert redact_text(text, UPSTREAM) == text


def test_configured_header_is_redacted_as_a_whole() -> None:
    assert redact_text("to Support desk", UPSTREAM) == "to ***"


ERROR: dict[str, Any] = {"message": f"bad {OURS[:12]}", "type": OURS[:16], "code": f"x.{OURS[3:]}"}


@pytest.mark.parametrize("status", [200, 400, 401, 404, 503])
@pytest.mark.parametrize("streamed", [False, True])
async def test_client_and_log_get_no_part_of_our_key(
    status: int, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond({"error": {**ERROR, "param": OURS[:10]}}, status))

    reply = await proxy.complete(stream=streamed)

    [record] = await proxy.sink.wait()
    for words in (reply.raw.decode(), json.dumps(build_call_line(record), default=str)):
        assert OURS[:8] not in words
        assert OURS[8:16] not in words.replace("upstream_", "")
