"""Anthropic: Messages, whole and streamed.

Source: the typed models of Anthropic's Python SDK, 2.12.0, for ``POST /v1/messages``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from proxy.dialects import openai, request_headers
from proxy.dialects.base import (
    ClientDialect,
    Dialect,
    ErrorResponse,
    Headers,
    TableCells,
    UpstreamDialect,
)
from proxy.dialects.bounds import typed
from proxy.dialects.messages import models
from proxy.dialects.messages.checking import check_blocks
from proxy.dialects.messages.models import check_page
from proxy.dialects.statuses import CONTEXT, MESSAGES_TYPES, QUOTA, USUAL
from proxy.errors import (
    CircuitOpen,
    InvalidField,
    Overloaded,
    ProxyError,
    UpstreamBusy,
    UpstreamError,
)
from proxy.errors.field_problems import BAD_NAME
from proxy.errors.words import MAX_NAME, MAX_TEXT
from proxy.fields.checks import Fields, tokens
from proxy.fields.field_table import fields_of
from proxy.types import Endpoint, Json, RequestHead, Secret

PATHS: Mapping[Endpoint, str] = {
    "chat": "/messages",
    "count_tokens": "/messages/count_tokens",
}
ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    *(("POST", path, endpoint) for endpoint, path in PATHS.items()),
    ("GET", "/models", "models"),
    ("GET", "/models/{model}", "models"),
)
VERSION = "2023-06-01"
UNTHREADED = {"error_code": "thread_unsupported_request"}
"""What has a client that began a thread send its whole conversation with each request instead."""
BUSY = 529  # its status where a service has too much to do
REQUEST_ID = "request-id"

MESSAGES: Fields = fields_of("messages")

COUNT_TOKENS: Fields = fields_of("count_tokens")
OPEN: Fields = {**typed(MESSAGES), **fields_of("messages.open")}
"""The same for a client whose upstream may be another's: its lower bounds are those of Messages."""

OUTAGES = ("api_error", "overloaded_error", "timeout_error")
TOO_LONG = "prompt is too long"
"""What agents look for in a message before they compact."""


def credential(headers: Headers) -> Secret | None:
    """Read ``x-api-key``, or a Bearer, which a client sends that has a token."""
    return request_headers.plain("x-api-key", headers) or request_headers.bearer(headers)


def user_of(body: Json) -> str | None:
    """Return the end user whom the metadata name. Raises ``InvalidField``."""
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if user is not None and not (isinstance(user, str) and len(user) <= MAX_NAME):
        raise InvalidField("metadata.user_id", BAD_NAME)
    return user


def read_headers(headers: Headers, head: RequestHead) -> RequestHead:
    """Promise the id under which its SDKs show a request, and check what page is asked for."""
    check_page(head)
    return replace(head, echo=((REQUEST_ID, head.request_id),))


def check_thinking(body: Json) -> None:
    """Raise ``InvalidField`` for a budget of thoughts that is none."""
    thinking = body.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    problem = None if budget is None else tokens(1).check(budget)
    if problem is not None:
        raise InvalidField("thinking.budget_tokens", problem)


def refuse(error: ProxyError, request_id: str) -> ErrorResponse:
    """Anthropic's error object. A field at fault begins the message, and our own code of the error
    is in a header of every refusal."""
    status, message = _status(error), error.message
    kind = MESSAGES_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    theirs = error.upstream_type or ""
    if status >= 500 and theirs in OUTAGES:
        kind = theirs
    if error.upstream_code == CONTEXT and TOO_LONG not in message.lower():
        message = f"{TOO_LONG}: {message}"[:MAX_TEXT]
    inner: Json = {"type": kind, "message": message}
    if isinstance(error, InvalidField) and error.param == "thread":
        inner["details"] = UNTHREADED
    body = {"type": "error", "error": inner, "request_id": request_id}
    headers = ((REQUEST_ID, request_id), *openai.retry_headers(error))
    return ErrorResponse(status, body, headers)


def _status(error: ProxyError) -> int:
    if error.upstream_code == QUOTA:
        return 402
    busy = isinstance(error, CircuitOpen | Overloaded | UpstreamBusy)
    theirs = isinstance(error, UpstreamError) and error.upstream_status in (503, BUSY)
    return BUSY if busy or theirs else error.status


ANTHROPIC = Dialect(
    name="anthropic",
    provider="anthropic",
    fields={"chat": MESSAGES, "count_tokens": COUNT_TOKENS},
    types={"chat": OPEN, "count_tokens": COUNT_TOKENS},
    families={"chat": "messages", "count_tokens": "messages"},
    client=ClientDialect(
        routes={
            (method, prefix + path): endpoint
            for prefix in ("/v1", "")
            for method, path, endpoint in ROUTES
        },
        credential=credential,
        refuse=refuse,
        read_headers=read_headers,
        rules=dict.fromkeys(PATHS, (check_blocks, check_thinking)),
        ruled=frozenset({"messages", "system", "thinking"}),
        whole=models.whole,
        user=user_of,
        always_usage=True,
        reads_error_events=True,
        known_by="anthropic-version",
    ),
    server=UpstreamDialect(
        prefix="/v1",
        paths=PATHS,
        authorize=lambda key: ("x-api-key", key),
        shown=("anthropic-ratelimit-",),
        statuses={**USUAL, 402: "credential"},
        passed_prefix="anthropic-",
        usual_headers={"anthropic-version": VERSION},
    ),
    cells=TableCells(credential="`x-api-key`, or `Authorization: Bearer`"),
)
