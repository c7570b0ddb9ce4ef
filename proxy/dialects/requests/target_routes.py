"""Fast path for requests whose fields are forwarded unchanged, the usual case.

``translation`` handles all requests. A route precomputes what all requests of a client's endpoint
to a target share.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from proxy.dialects import CHECKED_FIELDS, DIALECTS
from proxy.dialects.base import Dialect, unchanged
from proxy.dialects.requests.field_filter import listed_fields
from proxy.dialects.requests.translation import (
    READ,
    UNANSWERED,
    apply_parameters,
    fields_of,
    obeyed_by,
    takes_zero,
)
from proxy.dialects.vendors import openai
from proxy.errors import InvalidField
from proxy.errors.field_problems import no_endpoint
from proxy.fields.token_bounds import GROUPS, most_tokens, prompts_of
from proxy.types import (
    Endpoint,
    Json,
    ParameterOverrides,
    Target,
    TargetRoute,
    TranslatedRequest,
    Upstream,
)
from proxy.types.endpoints import ChangedFields, NumericFields
from proxy.types.providers import ENDPOINTS

INSTEAD: Mapping[Endpoint, tuple[Endpoint, ...]] = {
    "completions": ("completions", "chat"),
    "chat": ("chat", "completions"),
    "responses": ("responses", "chat", "completions"),
}
"""The endpoints that can serve a call, the best first."""
MOST_KEPT = 256  # of what requests have said on one way: a client may say any number


def route_for(endpoint: Endpoint, from_dialect: Dialect, target: Target) -> TargetRoute:
    """Return the route from a client's endpoint to a target.

    Raises ``InvalidField`` if there is none.
    """
    routes = target.upstream.routes
    key = from_dialect.name, endpoint, target.endpoint
    if key not in routes:
        routes[key] = _new_route(endpoint, from_dialect, target)
    return routes[key]


def _new_route(client_endpoint: Endpoint, from_dialect: Dialect, target: Target) -> TargetRoute:
    to_dialect = DIALECTS[target.upstream.dialect]
    endpoint, upstream = target_endpoint(client_endpoint, target), target.upstream
    if endpoint not in _served(target):
        raise InvalidField("model", no_endpoint(endpoint))
    fields = fields_of(target, endpoint)
    checks = {name: field.check for name, field in fields.items()}
    families = from_dialect.families.get(client_endpoint), to_dialect.families.get(endpoint)
    server = to_dialect.server
    is_same = (
        client_endpoint == endpoint and families == (None, None) and server.from_chat is unchanged
    )
    is_same = is_same and (endpoint != "chat" or upstream.traits.is_plain)
    client_fields = CHECKED_FIELDS[from_dialect.name][client_endpoint]
    is_kept = from_dialect.client.to_chat in (unchanged, openai.to_chat)  # as it was checked
    url, headers = beside(upstream, to_dialect.server.paths[endpoint])
    return TargetRoute(
        endpoint=endpoint,
        url=url,
        headers=headers,
        rules=upstream.rules,
        passed=frozenset(fields.keys() | upstream.accepts) - GROUPS if is_same else frozenset(),
        checks=checks,
        unsure=frozenset(
            name
            for name, check in checks.items()
            if not (is_kept and name in client_fields and client_fields[name].check is check)
        ),
        obeyed=obeyed_by(upstream, fields),
        takes_zero=takes_zero(upstream),
        asked_for_usage=server.streams
        and server.usage_option
        and families[1] is None
        and upstream.asks_usage
        and (endpoint != "chat" or upstream.traits.takes("stream_options")),
    )


def target_endpoint(client_endpoint: Endpoint, target: Target) -> Endpoint:
    """Return the endpoint of the target that serves the call: its only one, else the client's."""
    if client_endpoint == "count_tokens":
        return client_endpoint
    if client_endpoint != "embeddings" and target.endpoint is not None:
        return target.endpoint
    endpoints = _served(target)
    return next(
        (endpoint for endpoint in INSTEAD.get(client_endpoint, ()) if endpoint in endpoints),
        client_endpoint,
    )


def _served(target: Target) -> frozenset[Endpoint]:
    """Return the endpoints of its dialect that a target supports."""
    missing = ENDPOINTS - target.upstream.traits.endpoints - {target.endpoint}
    return frozenset(DIALECTS[target.upstream.dialect].server.paths) - missing


def passed_on(
    way: TargetRoute, client_endpoint: Endpoint, body: Json, model: str, changes: ParameterOverrides
) -> TranslatedRequest | None:
    """Return the translated body of a request that needs no closer look, else None."""
    names = way.passed
    if not names.issuperset(body) or next(listed_fields(body, way.rules), None) is not None:
        return None
    changed = changed_fields(way, body, model, changes)
    if changed is None:
        return None
    for name in way.unsure.intersection(body):
        if name in changed.fields or body[name] is None:
            continue
        if way.checks[name](body[name]) is not None:
            return None
    result = {**body, "model": model, **changed.fields}
    max_output = 0 if client_endpoint in UNANSWERED else changed.most * prompts_of(result)
    return TranslatedRequest(
        body=result,
        dropped_fields=(),
        supported_fields=way.obeyed,
        accepts_zero_bound=way.takes_zero,
        max_output_tokens=max_output,
        changed=None if way.takes_zero and 0 in changed.fields.values() else changed.fields,
    )


def changed_fields(
    way: TargetRoute, body: Json, model: str, changes: ParameterOverrides
) -> ChangedFields | None:
    """Return what becomes of the fields that a body has and that decide it.

    None where it takes a closer look.
    """
    numbers = _numeric_fields(body, model, changes)
    if numbers is None:
        return None
    cached = changes.changed.setdefault(way, {}) if changes.set or changes.cap else way.unchanged
    try:
        return cached[numbers]  # in one step: threads that read large requests may empty it
    except KeyError:
        result = _changed_numbers(way, numbers, changes)
    if len(cached) >= MOST_KEPT:
        cached.clear()
    cached[numbers] = result
    return result


def _numeric_fields(body: Json, model: str, changes: ParameterOverrides) -> NumericFields | None:
    """Return the values of the fields that decide on changes, or None if one is not an integer."""
    names = READ.intersection(body)
    if changes.set:
        names |= changes.set.keys() & body.keys()
    if changes.cap:
        names |= changes.cap.keys() & body.keys()
    if not names:
        return model, ()
    numbers = [(name, body[name]) for name in body if name in names]
    for _, value in numbers:
        if type(value) is not int:
            return None
    return model, tuple(numbers)


def _changed_numbers(
    way: TargetRoute, numbers: NumericFields, changes: ParameterOverrides
) -> ChangedFields | None:
    """Return the changed fields, None if one is renamed or exceeds the upstream's range."""
    model, fields = numbers[0], dict(numbers[1])
    result = apply_parameters(
        way.endpoint, {"model": model, **fields}, changes, way.obeyed, takes_zero=way.takes_zero
    )
    changed = {name: value for name, value in result.items() if name != "model"}
    if result["model"] != model or list(changed)[: len(fields)] != list(fields):
        return None
    if not way.passed.issuperset(changed):
        return None
    for name, value in changed.items():
        if name in way.checks and value is not None and way.checks[name](value) is not None:
            return None
    max_tokens = most_tokens(changed, way.obeyed, takes_zero=way.takes_zero)
    return ChangedFields(changed, max_tokens)


def beside(upstream: Upstream, path: str) -> tuple[str, dict[str, str]]:
    """Return the URL of a path of an upstream, and the headers of a request to it.

    The headers are the proxy's and the policy's, none is the client's.
    """
    server = DIALECTS[upstream.dialect].server
    base = upstream.base_url.rstrip("/")
    prefix = "" if urlsplit(base).path else server.prefix
    query = f"?{upstream.query}" if upstream.query else ""
    headers = {
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "headrace",
    }
    headers.update((name.lower(), value.reveal()) for name, value in upstream.headers)
    if upstream.api_key is not None:
        name, value = server.authorize(upstream.api_key.reveal())
        if upstream.key_header is not None:
            name, value = upstream.key_header, upstream.api_key.reveal()
        headers[name] = value
    return base + prefix + path + query, headers
