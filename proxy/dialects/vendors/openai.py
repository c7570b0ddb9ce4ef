"""OpenAI. Requests of all other dialects are converted to and from this API.

Sources: OpenAI's API reference for legacy completions, chat completions and embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from proxy.dialects.base import ClientDialect, Dialect, ErrorResponse, UpstreamDialect
from proxy.dialects.responses import schema, stored
from proxy.dialects.vendors import other_gateways
from proxy.errors import GuardBlocked, InvalidField, ProxyError
from proxy.errors.field_problems import NEEDS_LOGPROBS
from proxy.fields.checks import Fields
from proxy.fields.field_table import get_fields
from proxy.fields.token_bounds import remove_ranges
from proxy.types import Endpoint, Json
from proxy.types.events import FamilyName

FIELDS: dict[Endpoint, Fields] = {
    endpoint: get_fields(endpoint)
    for endpoint in ("completions", "chat", "responses", "embeddings")
}


def check_stream_options(body: Json) -> None:
    if body.get("stream_options") is not None and body.get("stream") is not True:
        raise InvalidField("stream_options", "requires stream: true")


def check_best_of(body: Json) -> None:
    best_of = body.get("best_of")
    if best_of is None:
        return
    if best_of < (body.get("n") or 1) and best_of != 0:
        raise InvalidField("best_of", "must be greater than or equal to n")
    if best_of > 1 and body.get("stream") is True:
        raise InvalidField("best_of", "must be 1 if stream is true")


def check_top_logprobs(body: Json) -> None:
    if body.get("top_logprobs") is not None and body.get("logprobs") is not True:
        raise InvalidField("top_logprobs", NEEDS_LOGPROBS)


CHECKS_BY_ENDPOINT: dict[Endpoint, tuple[Callable[[Json], None], ...]] = {
    "completions": (check_stream_options, check_best_of),
    "chat": (check_stream_options, check_top_logprobs),
}
RULED_FIELDS = frozenset({"best_of", "stream_options", "top_logprobs"})


def make_error_object(error: ProxyError) -> Json:
    body: Json = {"message": error.message, "type": error.client_type}
    body |= {"param": error.param, "code": error.client_code}
    if isinstance(error, GuardBlocked):
        body["guard"] = {"name": error.guard, "kind": error.kind}
    return body


def make_error_response(
    error: ProxyError, request_id: str, *, ends_stream: bool = False
) -> ErrorResponse:
    """Return the ``error`` object that SDKs read."""
    body = {"error": make_error_object(error)}
    return ErrorResponse(error.status, body, make_retry_headers(error))


def make_retry_headers(error: ProxyError) -> tuple[tuple[str, str], ...]:
    """Return the headers that control retries of SDKs."""
    headers = [*error.headers]
    if error.retry_after_s is not None:
        delay_ms = max(1, round(error.retry_after_s * 1000))
        headers.append(("retry-after", str(-(-delay_ms // 1000))))
        headers.append(("retry-after-ms", str(delay_ms)))
    if error.should_retry is not None:
        headers.append(("x-should-retry", "true" if error.should_retry else "false"))
    return tuple(headers)


def make_routes(*prefixes: str) -> dict[tuple[str, str], Endpoint]:
    """Return the routes of this API under each prefix."""
    return add_prefixes(prefixes, _ROUTES)


def add_prefixes(
    prefixes: Iterable[str], routes: Sequence[tuple[str, str, Endpoint]]
) -> dict[tuple[str, str], Endpoint]:
    """Return routes (method, path and endpoint) under each prefix."""
    return {(method, p + path): endpoint for p in prefixes for method, path, endpoint in routes}


PATHS: dict[Endpoint, str] = {
    "completions": "/completions",
    "chat": "/chat/completions",
    "responses": "/responses",
    "embeddings": "/embeddings",
}
MODEL_ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/models", "models"),
    ("GET", "/models/{model}", "models"),
)
_ROUTES: tuple[tuple[str, str, Endpoint], ...] = (
    *(("POST", path, endpoint) for endpoint, path in PATHS.items() if endpoint != "responses"),
    *MODEL_ROUTES,
)

AZURE_PREFIX = "/openai/deployments/{deployment}"
AZURE_ROUTES: dict[tuple[str, str], Endpoint] = {
    **{
        ("POST", AZURE_PREFIX + PATHS[name]): name for name in ("chat", "completions", "embeddings")
    },
    **add_prefixes(["/openai"], MODEL_ROUTES),
}
"""Routes of Azure's clients. The first match counts, so chat precedes completions."""
RESPONSES_ROUTES: dict[tuple[str, str], Endpoint] = add_prefixes(
    ("/v1", "", "/openai/v1", "/openai"), (("POST", "/responses", "responses"), *stored.ROUTES)
)

RESPONSES: dict[Endpoint, FamilyName] = {"responses": "responses"}

OPENAI = Dialect(
    name="openai",
    families=RESPONSES,
    provider="openai",
    fields=FIELDS,
    lenient_fields={endpoint: remove_ranges(fields) for endpoint, fields in FIELDS.items()},
    client=ClientDialect(
        routes=make_routes("/v1", "", "/openai/v1")
        | AZURE_ROUTES
        | dict.fromkeys((("GET", path) for path in other_gateways.INFO_PATHS), "models")
        | RESPONSES_ROUTES,
        key_headers=("authorization", "api-key"),  # Azure's clients send the second one
        make_error_response=make_error_response,
        rules=CHECKS_BY_ENDPOINT | {"responses": schema.REQUEST_CHECKS},
        ruled_fields=RULED_FIELDS | schema.RULED_FIELDS,
        merge_documents=other_gateways.make_model_list_for_path,
        error_event_endpoints=frozenset({"chat", "completions", "responses"}),
    ),
    server=UpstreamDialect(
        prefix="/v1",
        paths=PATHS,
        forwarded_response_headers=("openai-processing-ms", "openai-version", "openai-model"),
    ),
)
