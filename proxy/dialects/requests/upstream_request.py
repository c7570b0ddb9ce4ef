"""Translates calls into requests to upstreams: method, URL, headers and body.

A route precomputes what all requests of a client's endpoint to a target share. Requests whose
fields are forwarded unchanged, the usual case, need no further translation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import orjson

from proxy.dialects import CHECKED_FIELDS, DIALECTS
from proxy.dialects.base import AUTHORIZATION, Dialect
from proxy.dialects.chat.tool_calls import add_signatures
from proxy.dialects.request_headers import select_forwarded_headers
from proxy.dialects.requests.field_filter import find_restricted_fields
from proxy.dialects.requests.translation import (
    DEPENDENCY_FIELDS,
    UNGENERATED_ENDPOINTS,
    accepts_zero_output_limit,
    apply_parameter_overrides,
    find_client_field_names,
    get_supported_fields,
    list_supported_names,
    translate_body,
)
from proxy.dialects.responses.schema import CONVERSATION, PREVIOUS_RESPONSE_ID
from proxy.dialects.responses.state_refs import make_unknown_id_error, replace_short_item_ids
from proxy.dialects.wire.large_json import MAX_DEPTH, check_serializable, serialize_large
from proxy.errors import InvalidField
from proxy.errors.field_problems import describe_missing_endpoint
from proxy.fields.token_bounds import OPTION_GROUPS, count_prompts, estimate_max_output_per_prompt
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.runtime.frozen import frozen
from proxy.types import (
    NO_OVERRIDES,
    Call,
    Endpoint,
    Json,
    ParameterOverrides,
    Target,
    TargetRoute,
    TranslatedRequest,
    Upstream,
)
from proxy.types.endpoints import ChangedFields
from proxy.types.providers import ENDPOINTS

if TYPE_CHECKING:
    from proxy.types.passthrough import BoundedUpload

MODEL_PLACEHOLDER = "{model}"  # placeholder in a URL
ENDPOINT_ALTERNATIVES: Mapping[Endpoint, tuple[Endpoint, ...]] = {
    "completions": ("completions", "chat"),
    "chat": ("chat", "completions"),
    "responses": ("responses", "chat", "completions"),
}
"""The endpoints that can serve a call, the best first."""
MAX_CACHED = 256  # combinations of numbers per route, because clients may send any number


@frozen
class UpstreamRequest:
    """A request to an upstream.

    ``endpoint`` is the target's. ``headers`` are shared by all requests of a route and must not be
    modified. ``max_output_tokens`` is the token bound of all choices. ``upload`` is a streamed
    body. ``needs_new_connection`` requires a new connection, because the upstream may have
    processed an earlier request.
    """

    url: str
    headers: dict[str, str]
    body: bytes
    endpoint: Endpoint
    dropped_fields: tuple[str, ...]
    max_output_tokens: int
    method: str = "POST"
    upload: BoundedUpload | None = None
    default_fields: tuple[str, ...] = ()
    needs_new_connection: bool = False


def make_target_route(
    client_endpoint: Endpoint, from_dialect: Dialect, target: Target
) -> TargetRoute:
    """Return the route from a client's endpoint to a target.

    Raises ``InvalidField`` if there is none.
    """
    upstream = target.upstream
    key = from_dialect.name, client_endpoint, target.endpoint
    if key in upstream.routes:
        return upstream.routes[key]
    to_dialect = DIALECTS[upstream.dialect]
    endpoint, server = choose_target_endpoint(client_endpoint, target), to_dialect.server
    if endpoint not in _get_supported_endpoints(target):
        raise InvalidField("model", describe_missing_endpoint(endpoint))
    fields = get_supported_fields(target, endpoint)
    checks = {name: field.check for name, field in fields.items()}
    families = from_dialect.families.get(client_endpoint), to_dialect.families.get(endpoint)
    is_same = client_endpoint == endpoint and server.from_chat is None
    is_same = is_same and (endpoint != "chat" or upstream.traits.is_openai_compatible)
    passed: Collection[str] = ()
    if is_same and families == (None, None):
        passed = fields.keys() | upstream.accepts
    elif is_same and families == ("responses", "responses"):
        passed = fields
    client_fields = CHECKED_FIELDS[from_dialect.name][client_endpoint]
    is_kept = from_dialect.client.to_chat is None  # unchanged from the checked body
    url, headers = make_url_and_headers(upstream, server.paths[endpoint])
    route = upstream.routes[key] = TargetRoute(
        endpoint=endpoint,
        url=url,
        headers=headers,
        rules=upstream.rules,
        unchanged_fields=frozenset(passed) - OPTION_GROUPS,
        checks=checks,
        unchecked_fields=frozenset(
            name
            for name, check in checks.items()
            if not (is_kept and name in client_fields and client_fields[name].check is check)
        ),
        supported_fields=list_supported_names(upstream, fields),
        accepts_zero_bound=accepts_zero_output_limit(upstream),
        requests_usage=server.can_stream
        and server.has_usage_option
        and families[1] is None
        and upstream.requests_usage
        and (endpoint != "chat" or upstream.traits.accepts_field("stream_options")),
    )
    return route


def choose_target_endpoint(client_endpoint: Endpoint, target: Target) -> Endpoint:
    """Return the target's endpoint for a call: its configured one, else the best it supports."""
    if client_endpoint == "count_tokens":
        return client_endpoint
    if client_endpoint != "embeddings" and target.endpoint is not None:
        return target.endpoint
    alternatives, supported = ENDPOINT_ALTERNATIVES, _get_supported_endpoints(target)
    endpoints = (name for name in alternatives.get(client_endpoint, ()) if name in supported)
    return next(endpoints, client_endpoint)


def _get_supported_endpoints(target: Target) -> frozenset[Endpoint]:
    missing = ENDPOINTS - target.upstream.traits.endpoints - {target.endpoint}
    return frozenset(DIALECTS[target.upstream.dialect].server.paths) - missing


def make_url_and_headers(upstream: Upstream, path: str) -> tuple[str, dict[str, str]]:
    """Return the URL of a path of an upstream, and the headers of the proxy and of the policy."""
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
        name, key = upstream.key_header or server.key_header, upstream.api_key.reveal()
        headers[name] = f"Bearer {key}" if name == AUTHORIZATION else key
    return base + prefix + path + query, headers


def translate_request(
    call: Call, target: Target, changes: ParameterOverrides = NO_OVERRIDES
) -> TranslatedRequest:
    """Translate the call for one target, with the overrides of rules.

    Limits claim tokens for this body before it is sent, so it is cached with the call unless it is
    large. Raises ``InvalidField`` with the client's name of the field.
    """
    for cached_target, cached_changes, cached in call.translations:
        if cached_target is target and cached_changes is changes:
            return cached
    endpoint, dialect = call.head.endpoint, DIALECTS[call.head.dialect]
    route = make_target_route(endpoint, dialect, target)
    result = build_untranslated_request(route, endpoint, call.body, target.model, changes)
    if result is None:
        try:
            result = translate_body(dialect, (endpoint, route.endpoint), call.body, target, changes)
        except InvalidField as error:
            names = find_client_field_names(error.param or "", call.field_aliases)
            raise InvalidField(names[0], error.problem) from None
        if target.upstream.traits.signs_calls and route.endpoint == "chat":
            result = replace(result, body=add_signatures(result.body, call.signatures))
    if call.size <= LARGE_BYTES:
        call.translations.append((target, changes, result))
    return result


def build_untranslated_request(
    route: TargetRoute, endpoint: Endpoint, body: Json, model: str, changes: ParameterOverrides
) -> TranslatedRequest | None:
    """Return a request whose fields are forwarded unchanged, None if one needs a translation."""
    is_unchanged = route.unchanged_fields.issuperset(body)
    if not is_unchanged or next(find_restricted_fields(body, route.rules), None):
        return None
    changed = compute_changed_fields(route, body, model, changes)
    if changed is None:
        return None
    for name in route.unchecked_fields.intersection(body):
        is_unchecked = name not in changed.fields and body[name] is not None
        if is_unchecked and route.checks[name](body[name]) is not None:
            return None
    result = {**body, "model": model, **changed.fields}
    max_output = 0 if endpoint in UNGENERATED_ENDPOINTS else changed.max_output_tokens
    if "prompt" in result:
        max_output *= count_prompts(result)
    return TranslatedRequest(
        result,
        (),
        route.supported_fields,
        accepts_zero_bound=route.accepts_zero_bound,
        max_output_tokens=max_output,
    )


def compute_changed_fields(
    route: TargetRoute, body: Json, model: str, changes: ParameterOverrides
) -> ChangedFields | None:
    """Return the numbers of a body with the overrides of rules, and its output limit.

    Return None if a number is not an integer, is renamed, or exceeds the upstream's range.
    """
    fields = {
        name: value
        for name, value in body.items()
        if name in DEPENDENCY_FIELDS or name in changes.set or name in changes.cap
    }
    for value in fields.values():
        if type(value) is not int:
            return None
    numbers = model, tuple(fields.items())
    cached = route.fields_without_rules
    if changes.set or changes.cap:
        cached = changes.changed.setdefault(route, {})
    with suppress(KeyError):
        return cached[numbers]  # one operation, because threads may clear the cache
    result = apply_parameter_overrides(
        route.endpoint,
        {"model": model, **fields},
        changes,
        route.supported_fields,
        accepts_zero=route.accepts_zero_bound,
    )
    changed = {name: value for name, value in result.items() if name != "model"}
    is_fit = result["model"] == model and route.unchanged_fields.issuperset(changed)
    is_fit = is_fit and [*changed][: len(fields)] == [*fields]
    is_fit = is_fit and not any(
        route.checks[name](value)
        for name, value in changed.items()
        if name in route.checks and value is not None
    )
    changed_fields = None
    if is_fit:
        zero = route.accepts_zero_bound
        bound = estimate_max_output_per_prompt(changed, route.supported_fields, accepts_zero=zero)
        changed_fields = ChangedFields(changed, bound)
    if len(cached) >= MAX_CACHED:
        cached.clear()
    cached[numbers] = changed_fields
    return changed_fields


def apply_overrides(call: Call, target: Target, changes: ParameterOverrides) -> Json:
    """Return a call's body in OpenAI's format, with the overrides of rules for a target."""
    if not (changes.set or changes.cap):
        return call.body
    route = target.upstream.routes.get((call.head.dialect, call.head.endpoint, target.endpoint))
    if route is not None:
        changed = compute_changed_fields(route, call.body, target.model, changes)
        if changed is not None and not (route.accepts_zero_bound and 0 in changed.fields.values()):
            return {**call.body, **changed.fields}
    endpoint = choose_target_endpoint(call.head.endpoint, target)
    fields = DIALECTS[target.upstream.dialect].fields.get(endpoint, {})
    names = fields.keys() | target.upstream.accepts
    body = apply_parameter_overrides(endpoint, {**call.body, "model": target.model}, changes, names)
    del body["model"]
    return {**body, "model": call.body["model"]} if "model" in call.body else body


def build_request(
    call: Call, target: Target, changes: ParameterOverrides = NO_OVERRIDES
) -> UpstreamRequest:
    """Return the request to a target for a call, with the overrides of rules.

    Raises ``InvalidField`` if the target's API lacks a part of the call.
    """
    route = make_target_route(call.head.endpoint, DIALECTS[call.head.dialect], target)
    translated = translate_request(call, target, changes)
    body, dropped = translated.body, translated.dropped_fields
    if call.stream and route.requests_usage:
        options = {**(body.get("stream_options") or {}), "include_usage": True}
        body = {**body, "stream_options": options}
    # The upstream would reject the option.
    elif not target.upstream.requests_usage and "stream_options" in body:
        options = {**(body["stream_options"] or {})}
        options.pop("include_usage", None)
        body = {name: value for name, value in body.items() if name != "stream_options"}
        body |= {"stream_options": options} if options else {}
        dropped = (*dropped, "stream_options")
    if call.state_ref is not None or call.item_ids:
        body = _insert_state_ids(body, call, route.endpoint)
    try:
        raw = orjson.dumps(body) if call.size <= LARGE_BYTES else serialize_large(body)
    except TypeError:
        raise _make_too_deep_error(body, call) from None
    headers, dialect = route.headers, target.upstream.dialect
    server = DIALECTS[dialect].server
    if server.forwarded_header_prefix is not None:
        client_headers = call.head.headers if call.head.dialect == dialect else {}
        forwarded = select_forwarded_headers(client_headers, server, target.upstream.accepts)
        headers = {**server.default_headers, **forwarded, **headers}
    if dropped:
        names = [find_client_field_names(name, call.field_aliases) for name in dropped]
        dropped = tuple(dict.fromkeys(chain(*names)))
    url = route.url
    if MODEL_PLACEHOLDER in url:
        url = url.replace(MODEL_PLACEHOLDER, quote(target.model, ""))
    return UpstreamRequest(
        url,
        headers,
        raw,
        endpoint=route.endpoint,
        dropped_fields=dropped,
        max_output_tokens=translated.max_output_tokens,
        default_fields=translated.default_fields,
    )


def _insert_state_ids(body: Json, call: Call, endpoint: Endpoint) -> Json:
    """Insert the upstream's id of the response or conversation that the call continues.

    Raise ``NotFound`` if the target no longer supports Responses.
    """
    ref = call.state_ref
    if endpoint != "responses":
        if ref is not None:
            raise make_unknown_id_error(call.head, ref.client_id, ref.param)
        return body
    if call.item_ids:
        body = {**body, "input": replace_short_item_ids(body.get("input"), call.item_ids)}
    if ref is None or not ref.id:
        return body
    return {**body, CONVERSATION if ref.is_conversation else PREVIOUS_RESPONSE_ID: ref.id}


def _make_too_deep_error(body: Json, call: Call) -> InvalidField:
    """Return the error for a body that translation has nested too deeply to be serialized."""
    for name, value in body.items():
        try:
            check_serializable({name: value})
        except TypeError:
            break
    problem = f"is nested more than {MAX_DEPTH} levels deep in the format of the upstream"
    return InvalidField(find_client_field_names(name, call.field_aliases)[0], problem)
