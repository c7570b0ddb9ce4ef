"""The table of dialects, and the reading of requests. This package opens no socket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

from proxy.dialects import request_headers
from proxy.dialects.base import AUTHORIZATION, ClientDialect, Dialect, Headers
from proxy.dialects.chat.tool_calls import CALL_LISTS, remove_signatures
from proxy.dialects.request_headers import (
    GEMINI_KEY,
    Parameters,
    compile_route,
    describe_unknown_path,
    insert_model_from_path,
    is_route_pattern,
    list_dropped_parameter_warnings,
    read_azure_deployment,
    read_path_parameters,
    read_query_parameters,
    redact_path,
    to_openai_path,
)
from proxy.dialects.vendors import (
    anthropic,
    enkrypt,
    fireworks,
    multimodel,
    openai,
    other_gateways,
    portkey,
    scale,
)
from proxy.errors import InvalidField, PathNotFound
from proxy.errors.field_problems import BAD_NAME
from proxy.errors.wire import MethodNotAllowed
from proxy.errors.words import MAX_NAME
from proxy.fields.checks import Fields, check_body, list_misspelling_warnings
from proxy.fields.field_table import START_OF_DOCUMENT, SYNONYMS
from proxy.fields.token_bounds import (
    KNOWN_SPELLINGS,
    OPTION_GROUPS,
    add_missing_common_fields,
    check_counts_and_spelling_in_option_groups,
)
from proxy.money.estimate import estimate_field_quarters
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.runtime.frozen import frozen
from proxy.types import EPOCH, Call, Endpoint, Json, RequestHead, Secret
from proxy.types.passthrough import PassthroughPaths, PassthroughRequest
from proxy.types.target import CREDENTIAL_WORDS

DIALECTS: dict[str, Dialect] = {
    "openai": openai.OPENAI,
    "portkey": portkey.PORTKEY,
    "fireworks": fireworks.FIREWORKS,
    "scale": scale.SCALE,
    "multimodel": multimodel.MULTIMODEL,
    "enkrypt": enkrypt.ENKRYPT,
    "anthropic": anthropic.ANTHROPIC,
}

CHECKED_FIELDS: dict[str, dict[Endpoint, Fields]] = {
    name: {
        endpoint: add_missing_common_fields(dialect.lenient_fields.get(endpoint, fields))
        for endpoint, fields in dialect.fields.items()
    }
    for name, dialect in DIALECTS.items()
}
"""Types of the request fields that are checked when a request is parsed."""
HEADER_PREFIXES: dict[str, Dialect] = {
    dialect.client.header_prefix: dialect
    for dialect in DIALECTS.values()
    if dialect.client.header_prefix is not None
}


DIALECTS_BY_HEADER: dict[str, dict[str, Dialect]] = {
    name: {
        f"\n{prefix}": sharer
        for prefix, sharer in HEADER_PREFIXES.items()
        if sharer is not dialect and sharer.client.routes == dialect.client.routes
    }
    for name, dialect in DIALECTS.items()
}
"""For each dialect: dialects with the same routes, keyed by the prefix of their headers."""
_BY_HEADERS = [dialect for sharing in DIALECTS_BY_HEADER.values() for dialect in sharing.values()]
_BY_PATH = [dialect for dialect in DIALECTS.values() if dialect not in _BY_HEADERS]
ROUTES: dict[tuple[str, str], tuple[str, Endpoint]] = {}
for _dialect in _BY_PATH:
    for _route, _endpoint in _dialect.client.routes.items():
        ROUTES.setdefault(_route, (_dialect.name, _endpoint))
"""Served routes by method and path, each with its first dialect and its endpoint."""
DIALECTS_OF_PATH: dict[str, tuple[str, ...]] = {
    path: tuple(d.name for d in _BY_PATH if path in {path for _, path in d.client.routes})
    for _, path in ROUTES
}
"""Dialects of each path, except dialects that only headers identify. The first is the default."""
PATH_PATTERNS: dict[str, re.Pattern[str]] = {
    path: compile_route(path) for path in DIALECTS_OF_PATH if is_route_pattern(path)
}
PLAIN_ROUTES: dict[tuple[str, str], Endpoint] = {
    route: endpoint for route, (_, endpoint) in ROUTES.items() if route[1] not in PATH_PATTERNS
}
ONLY_DIALECT_OF_PATH: dict[str, str] = {
    path: names[0]
    for path, names in DIALECTS_OF_PATH.items()
    if path not in PATH_PATTERNS and len(names) == 1
}
"""Dialect of each path that has exactly one."""

QUERY_PARAMETERS: dict[Endpoint, frozenset[str]] = {
    "models": frozenset({"after_id", "before_id", "limit", "names"}),
    "stored": frozenset(
        {"after", "include", "include[]", "include_obfuscation", "limit", "order"}
        | {"starting_after", "stream"}
    ),
    "conversations": frozenset({"after", "include", "include[]", "limit", "order"}),
}
"""Query parameters that are read at each endpoint. Others are ignored, because they may be
secrets."""
ENDPOINTS_WITHOUT_BODY: frozenset[Endpoint] = frozenset({"models", "stored"})
"""Endpoints whose requests have no body."""
STATEFUL_ENDPOINTS: frozenset[Endpoint] = frozenset({"responses", "stored", "conversations"})
"""Endpoints whose calls may use or manage state that a provider stores."""
UNSTREAMED_ENDPOINTS: frozenset[Endpoint] = frozenset({"embeddings", "count_tokens"})
_CREDENTIAL = re.compile("|".join(CREDENTIAL_WORDS))
USUAL_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host"}
    | {"traceparent", "user-agent", "x-forwarded-for", "x-request-id"}
)
"""Headers of most requests. None of these names contains a credential word."""


def find_dialect(path: str, headers: Headers) -> Dialect:
    """Return the dialect of a request by its path and headers; OpenAI's for an unknown path."""
    return find_dialect_and_joined_names(path, headers)[0]


def find_dialect_and_joined_names(path: str, headers: Headers) -> tuple[Dialect, str]:
    """Return the dialect of a request, and the header names, each after a newline."""
    names = "\n".join(("", *headers))
    name = ONLY_DIALECT_OF_PATH.get(path) or _find_dialect_name(path, headers)
    for mark, dialect in DIALECTS_BY_HEADER[name].items():
        if mark in names:
            return dialect, names
    return DIALECTS[name], names


def read_api_key(names: tuple[str, ...], headers: Headers) -> Secret | None:
    """Return the key in the first header that has one, in ``authorization`` as a Bearer token."""
    for name in names:
        text = headers.get(name, "")
        if name == AUTHORIZATION:
            text = text[7:] if text[:7].lower() == "bearer " else ""
        if text := text.strip():
            return Secret(text)
    return None


def _find_dialect_name(path: str, headers: Headers) -> str:
    """Return a dialect's name by the path, a prefix of it, or a client's header, in this order."""
    routes = (route for route, pattern in PATH_PATTERNS.items() if pattern.fullmatch(path))
    prefixes = (known_path for known_path in DIALECTS_OF_PATH if path.startswith(known_path + "/"))
    for route in chain([path], routes, prefixes):
        if route in DIALECTS_OF_PATH:
            return _choose_dialect_by_headers(DIALECTS_OF_PATH[route], headers)
    names = (name for name, d in DIALECTS.items() if d.client.identifying_header in headers)
    return next(names, "openai")


def _choose_dialect_by_headers(names: tuple[str, ...], headers: Headers) -> str:
    # A header of a dialect decides, then a key that only one dialect reads, then the order.
    has_key = read_api_key(DIALECTS[names[0]].client.key_headers, headers) is not None
    for name in names[1:]:
        client = DIALECTS[name].client
        if client.identifying_header in headers:
            return name
        if not has_key and read_api_key(client.key_headers, headers) is not None:
            return name
    return names[0]


def get_no_passthrough_paths() -> None:
    pass


@frozen
class RequestContext:
    """Properties of a request that the server sets."""

    request_id: str
    call_id: str = ""
    received_at: datetime = EPOCH
    query: str = ""
    """The query string, not decoded."""
    matched_dialect: tuple[Dialect, str] | None = None
    """Result of ``find_dialect_and_joined_names``, None if unknown."""
    get_passthrough_paths: Callable[[], PassthroughPaths | None] = get_no_passthrough_paths
    """Returns the passthrough paths of the active policy."""


def parse_request_head(
    method: str, path: str, headers: Headers, context: RequestContext
) -> RequestHead:
    """Parse the head of a request. Raises ``RequestError``."""
    route: str = path
    parameters: Parameters = ()
    if (method, path) in PLAIN_ROUTES:
        endpoint = PLAIN_ROUTES[method, path]
    else:
        route, endpoint, parameters = _match_route(method, path, context.get_passthrough_paths)
    names = QUERY_PARAMETERS.get(endpoint, frozenset()) if context.query else frozenset()
    if names:
        parameters += read_query_parameters(context.query, names)
    dialect, joined_names = context.matched_dialect or find_dialect_and_joined_names(path, headers)
    client = dialect.client
    is_gemini = endpoint == "passthrough" and GEMINI_KEY in headers
    key_headers = (*client.key_headers, GEMINI_KEY) if is_gemini else client.key_headers
    credential = read_api_key(key_headers, headers)
    head = RequestHead(
        dialect.name,
        endpoint,
        route,
        request_id=context.request_id,
        call_id=context.call_id,
        digest=None if credential is None else credential.digest,
        headers=_drop_credentials(headers, credential),
        received_at=context.received_at,
        parameters=parameters,
        method="GET" if method == "HEAD" else method,
    )
    if endpoint == "passthrough":
        request = PassthroughRequest(to_openai_path(path, parameters), context.query)
        head = replace(head, passthrough=request)
    elif context.query:
        head = replace(head, warnings=list_dropped_parameter_warnings(context.query, names))
    if request_headers.HEADRACE_PREFIX in joined_names or "traceparent" in headers:
        head = request_headers.read_common_headers(headers, head)
    if client.read_headers is not None:
        head = client.read_headers(headers, head)
    if other_gateways.GATEWAY_HEADERS.search(joined_names) is not None:
        head = other_gateways.read_other_gateway_headers(headers, head)
    return head


def _match_route(
    request_method: str, path: str, get_passthrough_paths: Callable[[], PassthroughPaths | None]
) -> tuple[str, Endpoint, Parameters]:
    # ``HEAD`` uses the routes of ``GET``. Raises ``RequestError`` for an unknown path or method.
    method = "GET" if request_method == "HEAD" else request_method
    if (method, path) in PLAIN_ROUTES:
        return path, PLAIN_ROUTES[method, path], ()
    allowed_methods = {verb for verb, known_path in PLAIN_ROUTES if known_path == path}
    for route, pattern in PATH_PATTERNS.items():
        match = pattern.fullmatch(path)
        if match is not None:
            if (method, route) in ROUTES:
                return route, ROUTES[method, route][1], read_path_parameters(match)
            allowed_methods |= {verb for verb, known_path in ROUTES if known_path == route}
    if "GET" in allowed_methods:
        allowed_methods.add("HEAD")
    listed_route, parameters = _find_passthrough_route(
        request_method, path, get_passthrough_paths(), allowed_methods
    )
    return listed_route, "passthrough", parameters


def _find_passthrough_route(
    method: str, path: str, passthrough_paths: PassthroughPaths | None, allowed_methods: set[str]
) -> tuple[str, Parameters]:
    # Raises ``PathNotFound`` or ``MethodNotAllowed``.
    if passthrough_paths is not None:
        for parameters in ((), read_azure_deployment(path)):
            openai_form = to_openai_path(path, parameters)
            match = passthrough_paths.find(method, openai_form)
            if match is not None:
                return match.route, parameters
            allowed_methods = allowed_methods.union(passthrough_paths.find_methods(openai_form))
    if allowed_methods:
        raise MethodNotAllowed(", ".join(sorted(allowed_methods)))
    raise PathNotFound(
        describe_unknown_path(path, {served for _, served in PLAIN_ROUTES}), redact_path(path)
    )


def _drop_credentials(headers: Headers, credential: Secret | None) -> Headers:
    # Headers of properties may have any name, such as ``max-tokens``.
    result = dict(headers)
    for name in headers.keys() - USUAL_HEADERS:
        is_property = name.startswith(other_gateways.PROPERTY_PREFIX)
        if _CREDENTIAL.search(name) is not None and not is_property:
            del result[name]
    secret = "" if credential is None else credential.reveal()
    if secret and secret in "\n".join(result.values()):
        result = {name: value for name, value in result.items() if secret not in value}
    return result


def read_call(head: RequestHead, body: Json, size: int = 0, caller: str = "") -> Call:
    """Return the call of a valid body, with a vendor's fields converted to the API family's.

    ``size`` is in bytes. ``caller`` identifies the client in the fair queue.
    """
    client, endpoint = DIALECTS[head.dialect].client, head.endpoint
    fields = CHECKED_FIELDS[head.dialect][endpoint]
    warnings = list_misspelling_warnings(fields, body)
    if head.parameters:
        body, path_warnings = insert_model_from_path(head, body)
        warnings += path_warnings
    _validate_body(client, endpoint, fields, body)
    if "metadata" in body:
        if client.read_end_user is not None and head.user is None:
            head = replace(head, user=client.read_end_user(body))
        head, body = other_gateways.move_metadata_tags(head, body)
    model: Any = body["model"]
    deployment = None
    if client.split_off_deployment is not None:
        model, deployment = client.split_off_deployment(model)
    models = tuple(model) if type(model) is list else (model,)
    signatures: dict[str, str] = {}
    member = CALL_LISTS.get(DIALECTS[head.dialect].families.get(endpoint, ""), "")
    if type(body.get(member)) is list:
        body, signatures = remove_signatures(body, member)
    chat = body if client.to_chat is None else client.to_chat(endpoint, body)
    if endpoint == "completions" and chat.get("prompt") is None:
        chat = {**chat, "prompt": START_OF_DOCUMENT}
    check_name_lengths("model", *models)
    if (head.user or head.deployment or deployment) is not None or "user" in chat:
        check_name_lengths("user", chat.get("user"), head.user)
        check_name_lengths("deployment", head.deployment, deployment)
    timeouts_s = [limit for limit in (head.timeout_s, chat.get("inference_timeout")) if limit]
    return Call(
        head,
        chat,
        models,
        deployment=deployment,
        stream="stream" in body and body["stream"] is True and endpoint not in UNSTREAMED_ENDPOINTS,
        wants_usage=client.always_sends_usage
        or (body.get("stream_options") or {}).get("include_usage") is True,
        timeout_s=min(timeouts_s, default=None),
        warnings=(*warnings, *_list_dropped_field_warnings(client, body, chat)),
        size=size,
        field_quarters=estimate_field_quarters(chat) if size > LARGE_BYTES else {},
        field_aliases=SYNONYMS.intersection(body),
        scheduling_key=caller,
        signatures=signatures,
        background=endpoint == "responses" and body.get("background") is True,
    )


def _validate_body(client: ClientDialect, endpoint: Endpoint, fields: Fields, body: Json) -> None:
    check_body(fields, body, KNOWN_SPELLINGS)
    if not client.ruled_fields.isdisjoint(body):
        for rule in client.rules.get(endpoint, ()):
            rule(body)
    if not OPTION_GROUPS.isdisjoint(body):
        check_counts_and_spelling_in_option_groups(body)


def check_name_lengths(param: str, *names: Any) -> None:
    """Raise ``InvalidField`` for a name that is not a string of at most 256 characters."""
    for name in names:
        if name is not None and not (type(name) is str and len(name) <= MAX_NAME):
            raise InvalidField(param, BAD_NAME)


def _list_dropped_field_warnings(client: ClientDialect, body: Json, chat: Json) -> Iterator[str]:
    """Yield a warning for each field that was dropped from a body in whole or in part."""
    for alias, name in client.aliases.items():
        if body.get(alias) is not None and alias not in chat and body[alias] != chat.get(name):
            yield f"{alias} dropped"
    for name in client.filtered_fields:
        if body.get(name) != chat.get(name):
            yield f"{name} filtered"
