"""What the status of an upstream's response means, and which words of its error may pass.

Each dialect has a table of the statuses that it means otherwise than others do. A fault that the
request itself may have is never held against the target: else one client could have it taken from
all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import orjson

from proxy.dialects.findings import find_findings
from proxy.errors import (
    BlockedByUpstream,
    ProxyError,
    UpstreamError,
    UpstreamFinding,
    UpstreamForbids,
    UpstreamRejected,
    UpstreamRejectedKey,
    UpstreamUnavailable,
)
from proxy.errors.words import MAX_TEXT
from proxy.runtime.frozen import frozen
from proxy.types import Json

Meaning = Literal[
    "answer",  # an answer follows
    "flagged",  # an answer follows, and a guard of the upstream found fault with it
    "denied",  # a guard of the upstream denied the call
    "request",  # the request is at fault
    "credential",  # our credential is refused
    "forbidden",  # our credential may not do this, or nobody may
    "outage",  # the upstream is overloaded, or fails
    "invalid",  # what follows is no answer
]
Statuses = Mapping[int, Meaning]

USUAL: Statuses = {
    200: "answer",
    401: "credential",
    402: "forbidden",  # what is left of our credit does not pay for this call, or for any
    403: "forbidden",
    407: "credential",
    408: "outage",
    425: "outage",
    429: "outage",
    501: "request",
    505: "request",
    508: "request",  # a client says itself through how many proxies it came
}
DENIALS = frozenset({"guardrail_blocked"})
"""The words for a denied call that any upstream may use: Headrace's own."""
CONTEXT, QUOTA = "context_length_exceeded", "insufficient_quota"
"""OpenAI's codes of conditions that clients act on: agents compact, and stop."""

_STEP = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TOO_LARGE = re.compile(r"Request too large\b|.{0,512}\bLimit (\d{1,15}), Requested (\d{1,15})\b")
_OF_ACCOUNT = re.compile(
    r"(?i:api key (?:not valid|expired)\.|incorrect api key provided"
    r"|your credit balance is too low|billing hard limit)"
)
"""How a 400 begins by which Gemini, xAI, Anthropic and OpenAI refuse whoever is paying."""
_ACCOUNT_CODES = frozenset(
    {"billing_hard_limit_reached", "billing_not_active", "organization_restricted"}
)
_UNPAID = re.compile(r"(?i:your credit balance is too low)")
_TOO_LONG = re.compile(
    r"(?i:.{0,512}?(?:(?:prompt|input) is too long|maximum (?:context|prompt) length"
    r"|exceeds? (?:the |its )?(?:available |maximum )?context (?:length|limit|size|window)"
    r"|exceeds the maximum number of tokens allowed))",
    re.DOTALL,
)
"""How providers and model servers say that a prompt does not fit the model's context window."""
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
"""The types of errors in Anthropic's Messages by their status."""
STATUS_OF_WORD: Mapping[str, int] = {
    **{word: status for status, word in MESSAGES_TYPES.items()},
    **dict.fromkeys(("BadRequestError", CONTEXT), 400),
    **dict.fromkeys((QUOTA, "rate_limit_exceeded"), 429),
    **dict.fromkeys(("api_error", "cancelled", "server_error"), 500),
    **dict.fromkeys(("server_is_overloaded", "slow_down"), 503),
    "vector_store_timeout": 504,
}
"""The statuses of codes and types, for errors within a stream."""


@frozen
class ErrorBody:
    """What an upstream's error object says. ``code`` and ``type`` are short words, or None."""

    message: str | None = None
    param: str | None = None
    code: str | None = None
    type: str | None = None
    status: int | None = None
    findings: tuple[UpstreamFinding, ...] = ()


def meaning_of(statuses: Statuses, status: int) -> Meaning:
    """Return what a response of this status is."""
    known = statuses.get(status)
    if known is not None:
        return known
    if status >= 500:
        return "outage"
    return "request" if status >= 400 else "invalid"


def meaning_of_error(
    statuses: Statuses, denials: frozenset[str], error: ErrorBody, status: int | None
) -> Meaning:
    """Return what an error object means. Its status may be the response's, or unknown."""
    if is_denial(denials, error):
        return "denied"
    if status is None:
        return "outage"
    if status == 429 and is_too_large(error):
        return "request"
    meaning = meaning_of(statuses, status)
    return "forbidden" if meaning == "request" and is_about_account(error) else meaning


def error_of(meaning: Meaning, error: ErrorBody, status: int | None) -> ProxyError:
    """Return the error that an upstream reported. Its message passes unless it is about the
    proxy's credential or account."""
    if status == 402:
        error = replace(error, code=QUOTA, type=QUOTA)
    is_quota = error.code == QUOTA
    made: BlockedByUpstream | UpstreamError
    if meaning in ("credential", "forbidden"):
        kind = UpstreamRejectedKey if meaning == "credential" else UpstreamForbids
        text = "The operator's account at the upstream has no credit." if is_quota else ""
        made = kind(text, status=429 if is_quota else None, upstream_status=status)
        if is_quota or meaning == "forbidden":
            made.with_code(error.code, error.type)
    elif meaning == "denied":
        made = BlockedByUpstream(upstream_status=status).with_code(None, None, error.message)
    elif meaning == "request":
        made = UpstreamRejected(upstream_status=status or 400, param=error.param)
        made.with_code(error.code, error.type, error.message)
        made.status = 400 if error.code == CONTEXT else made.status
    else:
        shown = {429: 429, 503: 503, 529: 503}.get(status or 0, 502)
        made = UpstreamUnavailable(status=shown, upstream_status=status)
        made.with_code(error.code, error.type, error.message)
        made.should_retry = False if is_quota else None
    made.findings = error.findings
    return made


def is_denial(denials: frozenset[str], error: ErrorBody) -> bool:
    """True if the words of an error say that a guard denied the call."""
    return error.code in denials or error.type in denials


def is_about_account(error: ErrorBody) -> bool:
    """True if the words of an error say that our key is none, or that nothing is left that pays:
    the fault of no request, whatever its status."""
    if error.code in _ACCOUNT_CODES or error.type in _ACCOUNT_CODES:
        return True
    return _OF_ACCOUNT.match(error.message or "") is not None


def is_too_large(error: ErrorBody) -> bool:
    """True if the words of a 429 say that the request alone is beyond what a limit allows: it would
    be refused at any time."""
    found = _TOO_LARGE.match(error.message or "")
    if found is None:
        return False
    return found[1] is None or int(found[2]) > int(found[1])


def parse_error(data: Any) -> ErrorBody:
    """Read the error object of any dialect, and what guards found beside it. Conditions that
    clients act on get OpenAI's code."""
    if isinstance(data, list) and len(data) == 1:  # as Gemini does where it speaks as OpenAI
        data = data[0]
    if not isinstance(data, dict):
        return ErrorBody()
    error = _parse(data.get("error") or data.get("detail") or data)
    if error.code == CONTEXT or _TOO_LONG.match(error.message or ""):
        error = replace(error, code=CONTEXT, type="invalid_request_error")
    elif {QUOTA, "billing_error"} & {error.code, error.type} or _UNPAID.match(error.message or ""):
        error = replace(error, code=QUOTA, type=QUOTA)
    return replace(error, findings=find_findings(data))


def _parse(error: Any) -> ErrorBody:
    if isinstance(error, str):
        return ErrorBody(message=error)
    if isinstance(error, list):
        return _parse_detail(error)
    return _parse_object(error) if isinstance(error, dict) else ErrorBody()


def _parse_detail(problems: list[Any]) -> ErrorBody:
    """Read FastAPI's list of problems, each with the place of a field; the first one counts."""
    problem = next((item for item in problems if isinstance(item, dict)), {})
    message, param = problem.get("msg"), _field(problem.get("loc"))
    if not isinstance(message, str):
        return ErrorBody(param=param)
    return ErrorBody(message=f"{param}: {message}" if param else message, param=param)


def _field(place: Any) -> str | None:
    """Return the field at a place such as ``["body", "messages", 0, "role"]``."""
    steps = [str(step) for step in place] if isinstance(place, list) else []
    steps = steps[1:] if steps[:1] == ["body"] else steps
    return ".".join(steps) if steps and all(map(_STEP.fullmatch, steps)) else None


def _parse_object(error: Json) -> ErrorBody:
    message, param, code = error.get("message"), error.get("param"), error.get("code")
    word, kind = _word(code), _word(error.get("type"))
    status = _status(code) or STATUS_OF_WORD.get(word or "") or STATUS_OF_WORD.get(kind or "")
    inner = ErrorBody(message=message) if isinstance(message, str) else _parse_message(message)
    return ErrorBody(
        message=inner.message,
        param=param if isinstance(param, str) else inner.param,
        code=word,
        type=kind,
        status=status,
    )


def _parse_message(message: Any) -> ErrorBody:
    """Read a message that is an object or a list: problems of fields, an error, or any JSON."""
    found = message.get("detail") or message if isinstance(message, dict) else message
    if isinstance(found, list) and any(isinstance(each, dict) and "msg" in each for each in found):
        return _parse_detail(found)
    if isinstance(found, dict):
        found = found.get("message") or found.get("error") or found
    if not found or not isinstance(found, str | list | dict):
        return ErrorBody()
    text = found if isinstance(found, str) else orjson.dumps(found).decode()
    return ErrorBody(message=text[: 2 * MAX_TEXT])


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _status(code: Any) -> int | None:
    """Some servers say the status of an error as its code."""
    number = int(code) if isinstance(code, str) and re.fullmatch("[45][0-9]{2}", code) else code
    return number if type(number) is int and 400 <= number < 600 else None
