"""Builds requests about stored responses and conversations."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote, urlencode, urlsplit

import orjson

from proxy.dialects.requests.upstream_request import (
    MODEL_PLACEHOLDER,
    UpstreamRequest,
    choose_target_endpoint,
    make_url_and_headers,
    translate_request,
)
from proxy.dialects.responses import stored
from proxy.dialects.responses.state_refs import make_unknown_id_error, replace_short_item_ids
from proxy.dialects.wire.large_json import serialize_large
from proxy.errors import InvalidField
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import Call, Json, Target


def build_state_request(call: Call, target: Target) -> UpstreamRequest:
    """Return a request about stored state for the upstream that stores it.

    Raises ``NotFound`` if that upstream no longer serves Responses, and ``InvalidField``.
    """
    head, ref, raw = call.head, call.state_ref, b""
    is_conversation = head.endpoint == "conversations"
    serves_state = choose_target_endpoint("responses", target) == "responses"
    if not serves_state and is_conversation and ref is None:
        raise InvalidField("deployment", "has a target that does not support conversations")
    if not serves_state or (ref is None and not is_conversation):
        client_id = (head.get_url_parameter("id") or "") if ref is None else ref.client_id
        raise make_unknown_id_error(head, client_id)
    dropped: tuple[str, ...] = ()
    url, headers = make_url_and_headers(target.upstream, stored.make_upstream_path(call))
    if stored.find_operation(head).fields:
        body, dropped = _make_conversation_body(call, target)
        raw = orjson.dumps(body) if call.size <= LARGE_BYTES else serialize_large(body)
    else:
        del headers["content-type"]
    url = url.replace(MODEL_PLACEHOLDER, quote(target.model, ""))
    if query := urlencode(stored.make_upstream_query(head)):
        url += ("&" if urlsplit(url).query else "?") + query
    return UpstreamRequest(
        url=url,
        headers=headers,
        body=raw,
        endpoint=head.endpoint,
        dropped_fields=dropped,
        max_output_tokens=0,
        method=head.method,
    )


def _make_conversation_body(call: Call, target: Target) -> tuple[Json, tuple[str, ...]]:
    as_response = replace(call, head=replace(call.head, endpoint="responses"))
    with stored.input_error_renaming():
        request = translate_request(as_response, target)
    names = [name for name in ("input", "metadata") if name in request.body]
    body: Json = {name: request.body[name] for name in names}
    if "metadata" in call.body and call.body["metadata"] is None:  # null removes the metadata
        body["metadata"] = None
    if "input" in body:
        body["items"] = replace_short_item_ids(body.pop("input"), call.item_ids)
    return body, request.dropped_fields
