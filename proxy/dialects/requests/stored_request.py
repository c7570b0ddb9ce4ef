"""Builds requests about stored responses and conversations: method, path, query and new items."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote, urlencode, urlsplit

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.base import Dialect
from proxy.dialects.requests.target_routes import beside, target_endpoint
from proxy.dialects.requests.upstream_request import MODEL, UpstreamRequest, translate_request
from proxy.dialects.responses import stored
from proxy.dialects.responses.state_refs import restore_item_ids, unknown_id
from proxy.dialects.wire.large_json import dump_pieces
from proxy.errors import InvalidField
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import Call, Json, Target


def build_stored_request(call: Call, target: Target, to_dialect: Dialect) -> UpstreamRequest:
    """Write a call about a response for the target that keeps it. Raises ``NotFound`` where that
    speaks no Responses any more, and ``InvalidField``."""
    head, pin = call.head, call.state_ref
    if pin is None or target_endpoint("responses", target, to_dialect) != "responses":
        raise unknown_id(head, head.parameter("id") or "")
    return _request(call, target, to_dialect)


def build_conversation_request(call: Call, target: Target, to_dialect: Dialect) -> UpstreamRequest:
    """Write a call about a conversation for a target of the upstream that keeps it, or that makes
    it. Raises ``NotFound`` where that speaks no Responses any more, and ``InvalidField``."""
    if target_endpoint("responses", target, to_dialect) != "responses":
        if call.state_ref is None:
            raise InvalidField("deployment", "has a target that does not support conversations")
        raise unknown_id(call.head, call.state_ref.client_id)
    if not stored.operation_of(call.head).fields:
        return _request(call, target, to_dialect)
    as_response = replace(call, head=replace(call.head, endpoint="responses"))
    from_dialect = DIALECTS[call.head.dialect]
    with stored.errors_name_items():
        request = translate_request(as_response, target, from_dialect, to_dialect)
    body: Json = {
        name: request.body[name] for name in ("input", "metadata") if name in request.body
    }
    if "metadata" in call.body and call.body["metadata"] is None:  # there are to be none any more
        body["metadata"] = None
    if "input" in body:
        body["items"] = restore_item_ids(body.pop("input"), call.item_ids)
    written = orjson.dumps(body) if call.size <= LARGE_BYTES else dump_pieces(body)
    return _request(call, target, to_dialect, written, request.dropped_fields)


def _request(
    call: Call,
    target: Target,
    to_dialect: Dialect,
    body: bytes | None = None,
    dropped: tuple[str, ...] = (),
) -> UpstreamRequest:
    """Return a request for a path of an upstream, with the query of its call."""
    head = call.head
    url, headers = beside(target.upstream, to_dialect, stored.upstream_path(call))
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
