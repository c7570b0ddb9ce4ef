"""Builds requests to upstreams: method, URL, headers and body.

Requests about stored responses and conversations have a path, a query and perhaps new items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.chat.tool_calls import signed
from proxy.dialects.request_headers import forwarded_headers
from proxy.dialects.requests.target_routes import (
    beside,
    changed_fields,
    passed_on,
    route_for,
    target_endpoint,
)
from proxy.dialects.requests.translation import apply_parameters, blamed, names_of, translate
from proxy.dialects.responses import stored
from proxy.dialects.responses.schema import CONVERSATION, PREVIOUS
from proxy.dialects.responses.state_refs import restore_item_ids, unknown_id
from proxy.dialects.vendors.openai import OPENAI
from proxy.dialects.wire.large_json import MOST_DEPTH, check_pieces, dump_pieces
from proxy.errors import InvalidField
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.runtime.frozen import frozen
from proxy.types import (
    UNCHANGED,
    Call,
    Endpoint,
    Json,
    ParameterOverrides,
    StateRef,
    Target,
    TargetRoute,
    TranslatedRequest,
)

if TYPE_CHECKING:
    from proxy.types.passthrough import BoundedUpload

MODEL = "{model}"  # its place in an address


@frozen
class UpstreamRequest:
    """A request to an upstream.

    ``endpoint`` is the target's. ``headers`` are shared by all requests of a route and must not be
    modified. ``most_answered`` is the token bound of all choices. ``upload`` is a streamed body.
    ``fresh`` requires a new connection, because the upstream may have processed an earlier request.
    """

    url: str
    headers: dict[str, str]
    body: bytes
    endpoint: Endpoint
    dropped: tuple[str, ...]
    most_answered: int
    method: str = "POST"
    upload: BoundedUpload | None = None
    assumed: tuple[str, ...] = ()
    fresh: bool = False


def translate_request(
    call: Call, target: Target, changes: ParameterOverrides = UNCHANGED
) -> TranslatedRequest:
    """Translate the call for one target, with the changes of rules.

    Limits claim by this body, and it is the one that is sent, so it is cached with the call unless
    it is large. Raises ``InvalidField`` with the client's name of the field.
    """
    for cached_target, cached_changes, cached in call.translations:
        if cached_target is target and cached_changes is changes:
            return cached
    endpoint, dialect = call.head.endpoint, DIALECTS[call.head.dialect]
    way = route_for(endpoint, dialect, target)
    result = passed_on(way, endpoint, call.body, target.model, changes)
    if result is None:
        try:
            result = translate(dialect, (endpoint, way.endpoint), call.body, target, changes)
        except InvalidField as error:
            raise InvalidField(
                blamed(error.param or "", call.field_aliases), error.problem
            ) from None
        if target.upstream.traits.signs_calls and way.endpoint == "chat":
            result = replace(result, body=signed(result.body, call.signatures))
    if call.size <= LARGE_BYTES:
        call.translations.append((target, changes, result))
    return result


def parameters(call: Call, target: Target, changes: ParameterOverrides) -> Json:
    """Return a call's body as rules have changed it for a target, in OpenAI's form."""
    if not (changes.set or changes.cap):
        return call.body
    for translated_target, translated_changes, translated in call.translations:
        if (
            translated_target is target
            and translated_changes is changes
            and translated.changed is not None
        ):
            return {**call.body, **translated.changed}
    way = target.upstream.routes.get((call.head.dialect, call.head.endpoint, target.endpoint))
    if way is not None:
        changed = changed_fields(way, call.body, target.model, changes)
        if changed is not None and not (way.takes_zero and 0 in changed.fields.values()):
            return {**call.body, **changed.fields}
    endpoint = target_endpoint(call.head.endpoint, target)
    names = (
        DIALECTS[target.upstream.dialect].fields.get(endpoint, {}).keys() | target.upstream.accepts
    )
    body = apply_parameters(endpoint, {**call.body, "model": target.model}, changes, names)
    del body["model"]
    return {**body, "model": call.body["model"]} if "model" in call.body else body


def rule_changes(call: Call, target: Target, changes: ParameterOverrides) -> Json:
    """Return the fields of the request to a target that rules change: name, value before, after.

    Members of objects are named ``thinking.budget_tokens``. A missing field is None. Raise
    ``InvalidField`` if the target's dialect cannot express the call.
    """
    if not changes or call.head.endpoint not in OPENAI.fields:
        return {}
    values_before, values_after = (
        dict(_members(translate_request(call, target, overrides).body))
        for overrides in (UNCHANGED, changes)
    )
    names = sorted({*values_before, *values_after})
    return {
        name: (values_before.get(name), values_after.get(name))
        for name in names
        if values_before.get(name) != values_after.get(name)
    }


def _members(body: Json, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if isinstance(value, dict):
            yield from _members(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def build_request(
    call: Call, target: Target, changes: ParameterOverrides = UNCHANGED
) -> UpstreamRequest:
    """Write the call, as rules have changed it, for one target.

    Raises ``InvalidField`` when the target's dialect cannot express it.
    """
    way = route_for(call.head.endpoint, DIALECTS[call.head.dialect], target)
    fit_for = translate_request(call, target, changes)
    body, dropped = fit_for.body, fit_for.dropped_fields
    if call.stream and way.asked_for_usage:
        options = {**(body.get("stream_options") or {}), "include_usage": True}
        body = {**body, "stream_options": options}
    elif not target.upstream.asks_usage and "stream_options" in body:
        body, dropped = _without_usage(body), (*dropped, "stream_options")
    if call.state_ref is not None or call.item_ids:
        body = _leaning(body, call, call.state_ref, way)
    try:
        written = orjson.dumps(body) if call.size <= LARGE_BYTES else dump_pieces(body)
    except TypeError:
        raise _too_deep(body, call) from None
    return UpstreamRequest(
        url=way.url if MODEL not in way.url else way.url.replace(MODEL, quote(target.model, "")),
        headers=_headers(call, target, way),
        body=written,
        endpoint=way.endpoint,
        dropped=_by_client(call, dropped) if dropped else (),
        most_answered=fit_for.max_output_tokens,
        assumed=fit_for.default_fields,
    )


def _leaning(body: Json, call: Call, pin: StateRef | None, way: TargetRoute) -> Json:
    """Return a body that refers to stored state, with the upstream's own ids.

    Raises ``NotFound`` if the target no longer supports Responses.
    """
    if way.endpoint != "responses":
        if pin is not None:
            raise unknown_id(call.head, pin.client_id, pin.param)
        return body
    if call.item_ids:
        body = {**body, "input": restore_item_ids(body.get("input"), call.item_ids)}
    if pin is None or not pin.id:
        return body
    return {**body, CONVERSATION if pin.is_conversation else PREVIOUS: pin.id}


def _without_usage(body: Json) -> Json:
    """Return a body that asks for no usage: its upstream would refuse it."""
    options = {**(body["stream_options"] or {})}
    options.pop("include_usage", None)
    other_options = {name: value for name, value in body.items() if name != "stream_options"}
    return {**other_options, "stream_options": options} if options else other_options


def _too_deep(body: Json, call: Call) -> InvalidField:
    """Return the error for a body that translation has nested too deeply to be serialized."""
    for name, value in body.items():
        try:
            check_pieces({name: value})
        except TypeError:
            break
    problem = f"is nested more than {MOST_DEPTH} levels deep in the format of the upstream"
    return InvalidField(blamed(name, call.field_aliases), problem)


def _headers(call: Call, target: Target, way: TargetRoute) -> dict[str, str]:
    """Return the headers of the route and the forwarded headers of the client.

    The policy's have priority.
    """
    dialect = target.upstream.dialect
    server = DIALECTS[dialect].server
    if server.forwarded_prefix is None:
        return way.headers
    client_headers = call.head.headers if call.head.dialect == dialect else {}
    forwarded = forwarded_headers(client_headers, server, target.upstream.accepts)
    return {**server.usual_headers, **forwarded, **way.headers}


def _by_client(call: Call, dropped: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names by which the client's body has the fields that are dropped."""
    names = (alias for name in dropped for alias in names_of(name, call.field_aliases))
    return tuple(dict.fromkeys(names))


def build_stored_request(call: Call, target: Target) -> UpstreamRequest:
    """Write a call about a response for the target that keeps it.

    Raises ``NotFound`` where that speaks no Responses any more, and ``InvalidField``.
    """
    head, pin = call.head, call.state_ref
    if pin is None or target_endpoint("responses", target) != "responses":
        raise unknown_id(head, head.parameter("id") or "")
    return _request(call, target)


def build_conversation_request(call: Call, target: Target) -> UpstreamRequest:
    """Return a request about a conversation for the upstream that stores it.

    Raises ``NotFound`` if that upstream no longer serves Responses, and ``InvalidField``.
    """
    if target_endpoint("responses", target) != "responses":
        if call.state_ref is None:
            raise InvalidField("deployment", "has a target that does not support conversations")
        raise unknown_id(call.head, call.state_ref.client_id)
    if not stored.operation_of(call.head).fields:
        return _request(call, target)
    as_response = replace(call, head=replace(call.head, endpoint="responses"))
    with stored.errors_name_items():
        request = translate_request(as_response, target)
    body: Json = {
        name: request.body[name] for name in ("input", "metadata") if name in request.body
    }
    if "metadata" in call.body and call.body["metadata"] is None:  # there are to be none any more
        body["metadata"] = None
    if "input" in body:
        body["items"] = restore_item_ids(body.pop("input"), call.item_ids)
    written = orjson.dumps(body) if call.size <= LARGE_BYTES else dump_pieces(body)
    return _request(call, target, written, request.dropped_fields)


def _request(
    call: Call, target: Target, body: bytes | None = None, dropped: tuple[str, ...] = ()
) -> UpstreamRequest:
    """Return a request for a path of an upstream, with the query of its call."""
    head = call.head
    url, headers = beside(target.upstream, stored.upstream_path(call))
    url = url.replace(MODEL, quote(target.model, ""))
    query = urlencode(stored.upstream_query(head))
    if query:
        url += ("&" if urlsplit(url).query else "?") + query
    if body is None:
        headers = {name: value for name, value in headers.items() if name != "content-type"}
    return UpstreamRequest(
        url=url,
        headers=headers,
        body=body or b"",
        endpoint=head.endpoint,
        dropped=dropped,
        most_answered=0,
        method=head.method,
    )
