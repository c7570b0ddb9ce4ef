"""Anthropic: Messages, whole and streamed, and its list of models.

Source: the typed models of Anthropic's Python SDK, 2.12.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from proxy import errors
from proxy.dialects.base import ClientDialect, Dialect, ErrorResponse, Headers, UpstreamDialect
from proxy.dialects.messages.to_chat import check_content_blocks
from proxy.dialects.statuses import (
    CONTEXT_EXCEEDED,
    DEFAULT_STATUSES,
    MESSAGES_TYPES,
    POLICY_BLOCKED,
    QUOTA_EXCEEDED,
)
from proxy.dialects.vendors import openai
from proxy.dialects.wire.strict_json import as_object
from proxy.errors.field_problems import BAD_NAME
from proxy.errors.words import MAX_NAME, MAX_TEXT
from proxy.fields.checks import Fields, token_count
from proxy.fields.field_table import get_fields
from proxy.fields.token_bounds import remove_ranges
from proxy.types import Call, Endpoint, Json, RequestHead

PATHS: Mapping[Endpoint, str] = {"chat": "/messages", "count_tokens": "/messages/count_tokens"}
ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    *(("POST", path, endpoint) for endpoint, path in PATHS.items()),
    *openai.MODEL_ROUTES,
)
API_VERSION = "2023-06-01"
MAX_PAGE_MODELS = 1000
THREADS_UNSUPPORTED = {"error_code": "thread_unsupported_request"}
"""Error details that make a client send its whole conversation instead of a thread."""
OVERLOADED_STATUS = 529
REQUEST_ID = "request-id"

MESSAGES: Fields = get_fields("messages")
COUNT_TOKENS: Fields = get_fields("count_tokens")
LENIENT_MESSAGES: Fields = {**remove_ranges(MESSAGES), **get_fields("messages.open")}
"""Fields for a client whose upstream may be of another vendor: only the lower bounds of
Messages."""

OUTAGE_TYPES = ("api_error", "overloaded_error", "timeout_error")
TOO_LONG = "prompt is too long"
"""Text that makes agents compact the conversation."""
BLOCKED_OUTPUT = " (Output blocked by content filtering policy)"
"""Anthropic's words for a blocked response. Claude Code repeats other streams that fail."""


def read_end_user(body: Json) -> str | None:
    """Return the end user in the metadata. Raises ``InvalidField``."""
    user = as_object(body.get("metadata")).get("user_id")
    if user is not None and not (isinstance(user, str) and len(user) <= MAX_NAME):
        raise errors.InvalidField("metadata.user_id", BAD_NAME)
    return user


def check_page_and_echo_id(headers: Headers, head: RequestHead) -> RequestHead:
    check_page_size(head)
    return replace(head, echo=((REQUEST_ID, head.request_id),))


def check_thinking_budget_is_positive(body: Json) -> None:
    """Raise ``InvalidField`` for an invalid thinking budget."""
    budget = as_object(body.get("thinking")).get("budget_tokens")
    problem = None if budget is None else token_count(1).check(budget)
    if problem is not None:
        raise errors.InvalidField("thinking.budget_tokens", problem)


def make_error_response(
    error: errors.ProxyError, request_id: str, *, ends_stream: bool = False
) -> ErrorResponse:
    """Return Anthropic's error object. The message names an invalid field, as there is no param."""
    status, message = error.status, error.message
    is_busy = isinstance(error, errors.CircuitOpen | errors.Overloaded | errors.UpstreamBusy)
    if error.upstream_code == QUOTA_EXCEEDED:
        status = 402
    elif is_busy or (
        isinstance(error, errors.UpstreamError)
        and error.upstream_status in (503, OVERLOADED_STATUS)
    ):
        status = OVERLOADED_STATUS
    kind = MESSAGES_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    if status >= 500 and error.upstream_type in OUTAGE_TYPES:
        kind = error.upstream_type
    if isinstance(error, errors.GuardBlocked) and status < 500:
        kind = POLICY_BLOCKED
        message += BLOCKED_OUTPUT if ends_stream else ""
    if error.upstream_code == CONTEXT_EXCEEDED and TOO_LONG not in message.lower():
        message = f"{TOO_LONG}: {message}"[:MAX_TEXT]
    inner: Json = {"type": kind, "message": message}
    if isinstance(error, errors.InvalidField) and error.param == "thread":
        inner["details"] = THREADS_UNSUPPORTED
    body = {"type": "error", "error": inner, "request_id": request_id}
    headers = (REQUEST_ID, request_id), *openai.make_retry_headers(error)
    return ErrorResponse(status, body, headers)


def check_page_size(head: RequestHead) -> None:
    """Raise ``InvalidField`` for an invalid size of a page of models."""
    limit = head.get_url_parameter("limit")
    if limit is not None and not (
        limit.isascii() and limit.isdigit() and 1 <= int(limit[:5]) <= MAX_PAGE_MODELS
    ):
        raise errors.InvalidField("limit", f"must be an integer between 1 and {MAX_PAGE_MODELS}")


def convert_if_model_list(call: Call, documents: Mapping[int, Json]) -> Json:
    """Return a list of models in Anthropic's format. Token counts stay unchanged."""
    document = documents[0]
    return convert_model_list(call.head, document) if call.head.endpoint == "models" else document


def convert_model_list(head: RequestHead, data: Json) -> Json:
    """Return a model or a page of models in Anthropic's form.

    A page begins after ``after_id`` or ends before ``before_id``. If that model does not exist, for
    example because a reload removed it, the models are compared with the id.
    """
    if data.get("object") != "list":
        return _make_model_info(data)
    models, limit = data["data"], head.get_url_parameter("limit")
    size = MAX_PAGE_MODELS if limit is None else int(limit[:5])
    after_id, before_id = head.get_url_parameter("after_id"), head.get_url_parameter("before_id")
    positions = {model["id"]: position for position, model in enumerate(models)}
    if after_id in positions:
        models = models[positions[after_id] + 1 :]
    elif after_id is not None:
        models = [model for model in models if model["id"] > after_id]
    elif before_id in positions:
        models = models[: positions[before_id]]
    elif before_id is not None:
        models = [model for model in models if model["id"] < before_id]
    page = models[-size:] if after_id is None and before_id is not None else models[:size]
    return {
        "data": [_make_model_info(model) for model in page],
        "has_more": len(page) < len(models),
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
    }


def _make_model_info(model: Json) -> Json:
    created = datetime.fromtimestamp(model["created"], UTC)
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        "lifecycle": "active",
    }


ANTHROPIC = Dialect(
    name="anthropic",
    provider="anthropic",
    fields={"chat": MESSAGES, "count_tokens": COUNT_TOKENS},
    lenient_fields={"chat": LENIENT_MESSAGES, "count_tokens": COUNT_TOKENS},
    families={"chat": "messages", "count_tokens": "messages"},
    client=ClientDialect(
        routes=openai.add_prefixes(("/v1", ""), ROUTES),
        key_headers=("x-api-key", "authorization"),
        make_error_response=make_error_response,
        read_headers=check_page_and_echo_id,
        rules=dict.fromkeys(PATHS, (check_content_blocks, check_thinking_budget_is_positive)),
        ruled_fields=frozenset({"messages", "system", "thinking"}),
        merge_documents=convert_if_model_list,
        read_end_user=read_end_user,
        always_sends_usage=True,
        error_event_endpoints=frozenset({"chat"}),
        identifying_header="anthropic-version",
    ),
    server=UpstreamDialect(
        prefix="/v1",
        paths=PATHS,
        key_header="x-api-key",
        forwarded_response_headers=("anthropic-ratelimit-",),
        statuses={**DEFAULT_STATUSES, 402: "credential"},
        forwarded_header_prefix="anthropic-",
        default_headers={"anthropic-version": API_VERSION},
    ),
)
