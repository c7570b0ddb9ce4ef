"""Meaning of upstream statuses and errors.

Each dialect has a table of statuses with another meaning. An error that the request may have caused
never counts against the health of a target, because one client could otherwise disable it for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import orjson

from proxy import errors
from proxy.dialects.findings import read_upstream_findings
from proxy.dialects.wire.strict_json import as_objects
from proxy.errors.words import MAX_TEXT
from proxy.runtime.frozen import frozen
from proxy.types import Json

Meaning = Literal[
    "answer",  # success
    "flagged",  # a response that a guard of the upstream flagged
    "denied",  # a guard of the upstream denied the call
    "request",  # the request is invalid
    "credential",  # the upstream rejects the proxy's credential
    "forbidden",  # the credential lacks a permission or credit
    "outage",  # the upstream is overloaded or fails
    "invalid",  # not a response of the API
]
Statuses = Mapping[int, Meaning]

DEFAULT_STATUSES: Statuses = {
    200: "answer",
    401: "credential",
    402: "forbidden",  # too little credit
    403: "forbidden",
    407: "credential",
    408: "outage",
    425: "outage",
    429: "outage",
    501: "request",
    505: "request",
    508: "request",  # 508 is a loop of proxies, which the client's headers control
}
POLICY_BLOCKED = "policy_blocked"
"""Error type that makes Claude Code report a call as blocked by a policy."""
DENIAL_CODES = frozenset({"guardrail_blocked", POLICY_BLOCKED})
"""Codes and types of denied calls that any upstream may use: Headrace's own."""
CONTEXT_EXCEEDED, QUOTA_EXCEEDED = "context_length_exceeded", "insufficient_quota"
"""OpenAI's codes on which agents compact the conversation or stop."""

_STATUS = re.compile("[45][0-9]{2}")
_STEP = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TOO_LARGE = re.compile(r"Request too large\b|.{0,512}\bLimit (\d{1,15}), Requested (\d{1,15})\b")
_ACCOUNT_MESSAGE = re.compile(
    r"(?i:api key (?:not valid|expired)\.|incorrect api key provided"
    r"|your credit balance is too low|billing hard limit)"
)
"""Start of a 400 by which Gemini, xAI, Anthropic and OpenAI refuse an account."""
_ACCOUNT_CODES = frozenset(
    {"billing_hard_limit_reached", "billing_not_active", "organization_restricted"}
)
_LOW_CREDIT = re.compile(r"(?i:your credit balance is too low)")
_TOO_LONG = re.compile(
    r"(?i:.{0,512}?(?:(?:prompt|input) is too long|maximum (?:context|prompt) length"
    r"|exceeds? (?:the |its )?(?:available |maximum )?context (?:length|limit|size|window)"
    r"|exceeds the maximum number of tokens allowed))",
    re.DOTALL,
)
"""Messages of providers and model servers for prompts that exceed the context window."""
MESSAGES_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Error types of Anthropic's Messages by status."""
STATUS_OF_WORD: Mapping[str, int] = {
    **{word: status for status, word in MESSAGES_TYPES.items()},
    **dict.fromkeys(("BadRequestError", CONTEXT_EXCEEDED), 400),
    **dict.fromkeys((QUOTA_EXCEEDED, "rate_limit_exceeded"), 429),
    **dict.fromkeys(("api_error", "cancelled", "server_error"), 500),
    **dict.fromkeys(("server_is_overloaded", "slow_down"), 503),
    "vector_store_timeout": 504,
}
"""Statuses by error code or type, for errors within a stream."""


@frozen
class ErrorBody:
    """Content of an upstream's error object. ``code`` and ``type`` are short words or None."""

    message: str | None = None
    param: str | None = None
    code: str | None = None
    type: str | None = None
    status: int | None = None
    findings: tuple[errors.UpstreamFinding, ...] = ()


def classify_status(statuses: Statuses, status: int) -> Meaning:
    default: Meaning = "request" if status >= 400 else "invalid"
    return statuses.get(status, "outage" if status >= 500 else default)


def classify_error(
    statuses: Statuses, denial_codes: frozenset[str], error: ErrorBody, status: int | None
) -> Meaning:
    """Return the meaning of an error. ``status`` is None if it is unknown."""
    if error.code in denial_codes or error.type in denial_codes:
        return "denied"
    if status is None:
        return "outage"
    if status == 429 and is_request_above_rate_limit(error):
        return "request"
    meaning = classify_status(statuses, status)
    return "forbidden" if meaning == "request" and is_account_error(error) else meaning


def make_client_error(meaning: Meaning, error: ErrorBody, status: int | None) -> errors.ProxyError:
    """Return the client's error for an upstream error.

    The upstream's message is passed on unless it is about the proxy's credential or account.
    """
    if status == 402:
        error = replace(error, code=QUOTA_EXCEEDED, type=QUOTA_EXCEEDED)
    is_quota = error.code == QUOTA_EXCEEDED
    result: errors.BlockedByUpstream | errors.UpstreamError
    if meaning in ("credential", "forbidden"):
        kind = errors.UpstreamRejectedKey if meaning == "credential" else errors.UpstreamForbids
        text = "The operator's account at the upstream has no credit." if is_quota else ""
        result = kind(text, status=429 if is_quota else None, upstream_status=status)
        if is_quota or meaning == "forbidden":
            result.set_api_error(error.code, error.type)
    elif meaning == "denied":
        result = errors.BlockedByUpstream(upstream_status=status)
        result.set_api_error(None, None, error.message)
    elif meaning == "request":
        result = errors.UpstreamRejected(upstream_status=status or 400, param=error.param)
        result.set_api_error(error.code, error.type, error.message)
        result.status = 400 if error.code == CONTEXT_EXCEEDED else result.status
    else:
        client_status = {429: 429, 503: 503, 529: 503}.get(status or 0, 502)
        result = errors.UpstreamUnavailable(status=client_status, upstream_status=status)
        result.set_api_error(error.code, error.type, error.message)
        result.should_retry = False if is_quota else None
    result.findings = error.findings
    return result


def is_account_error(error: ErrorBody) -> bool:
    """Return True if an error is about the proxy's key or credit, whatever its status."""
    has_message = _ACCOUNT_MESSAGE.match(error.message or "") is not None
    return has_message or not _ACCOUNT_CODES.isdisjoint((error.code, error.type))


def is_request_above_rate_limit(error: ErrorBody) -> bool:
    """Return True if a 429 reports that a single request exceeds the rate limit."""
    match = _TOO_LARGE.match(error.message or "")
    return match is not None and (match[1] is None or int(match[2]) > int(match[1]))


def parse_error_body(data: Any) -> ErrorBody:
    """Read the error object of any dialect, with findings of guards.

    Exceeded context windows and quotas get OpenAI's code.
    """
    if isinstance(data, list) and len(data) == 1:  # Gemini's OpenAI API wraps errors in a list
        data = data[0]
    if not isinstance(data, dict):
        return ErrorBody()
    inner: Any = data.get("error") or data.get("detail") or data
    if isinstance(inner, list):
        error = _parse_first_fastapi_problem(inner)
    else:
        parse = _parse_error_object if isinstance(inner, dict) else _parse_error_message
        error = parse(inner)
    if error.code == CONTEXT_EXCEEDED or _TOO_LONG.match(error.message or ""):
        error = replace(error, code=CONTEXT_EXCEEDED, type="invalid_request_error")
    elif {QUOTA_EXCEEDED, "billing_error"} & {error.code, error.type} or (
        _LOW_CREDIT.match(error.message or "")
    ):
        error = replace(error, code=QUOTA_EXCEEDED, type=QUOTA_EXCEEDED)
    return replace(error, findings=read_upstream_findings(data))


def _parse_first_fastapi_problem(problems: list[Any]) -> ErrorBody:
    """Read the first of FastAPI's problems."""
    problem = next(iter(as_objects(problems)), {})
    message, place = problem.get("msg"), problem.get("loc")  # ["body", "messages", 0, "role"]
    steps = [str(step) for step in place] if isinstance(place, list) else []
    steps = steps[1:] if steps[:1] == ["body"] else steps
    param = ".".join(steps) if steps and all(map(_STEP.fullmatch, steps)) else None
    if not isinstance(message, str):
        return ErrorBody(param=param)
    return ErrorBody(message=f"{param}: {message}" if param else message, param=param)


def _parse_error_object(error: Json) -> ErrorBody:
    message, param, code = error.get("message"), error.get("param"), error.get("code")
    word, kind = _read_error_word(code), _read_error_word(error.get("type"))
    status: Any = int(code) if isinstance(code, str) and _STATUS.fullmatch(code) else code
    if type(status) is not int or not 400 <= status < 600:
        status = STATUS_OF_WORD.get(word or "") or STATUS_OF_WORD.get(kind or "")
    inner = ErrorBody(message) if isinstance(message, str) else _parse_error_message(message)
    param = param if isinstance(param, str) else inner.param
    return ErrorBody(inner.message, param, word, type=kind, status=status)


def _parse_error_message(message: Any) -> ErrorBody:
    """Read a ``message`` that is JSON: problems of fields, an error object, or other JSON."""
    inner = message.get("detail") or message if isinstance(message, dict) else message
    if isinstance(inner, list) and any(isinstance(item, dict) and "msg" in item for item in inner):
        return _parse_first_fastapi_problem(inner)
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("error") or inner
    if not inner or not isinstance(inner, str | list | dict):
        return ErrorBody()
    text = inner if isinstance(inner, str) else orjson.dumps(inner).decode()
    return ErrorBody(message=text[: 2 * MAX_TEXT])


def _read_error_word(value: Any) -> str | None:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None
