"""Enkrypt AI's proxy: ``apikey``, a deployment header, and detections in every response.

Sources: Enkrypt's API reference for ``/ai-proxy/completions``, and its Python SDK, which drops the
detections of an error with a ``message`` at its top level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from proxy.dialects import base, request_headers
from proxy.dialects.findings import (
    DETECTIONS_MEMBER,
    make_enkrypt_detections,
    merge_enkrypt_detections,
)
from proxy.dialects.vendors import openai
from proxy.errors import ProxyError, Unauthorized
from proxy.fields.checks import Fields
from proxy.fields.field_table import get_fields
from proxy.types import Call, Endpoint, Json, RequestHead
from proxy.types.guard import GuardResults

FIELDS: dict[Endpoint, Fields] = {
    "completions": get_fields("completions", "enkrypt"),
    "chat": get_fields("chat", "enkrypt"),
}


def add_guard_results(data: Json, results: GuardResults, findings: base.Findings = ()) -> Json:
    detections = merge_enkrypt_detections(data, findings, make_enkrypt_detections(results))
    return {**data, DETECTIONS_MEMBER: detections}


def read_enkrypt_headers(headers: base.Headers, head: RequestHead) -> RequestHead:
    return replace(
        head,
        deployment=head.deployment or headers.get("x-enkrypt-deployment", "").strip() or None,
        tags=head.tags + request_headers.read_tag_header("x-enkrypt-tags", headers),
        bypass_cache=head.bypass_cache
        or request_headers.read_boolean_header("x-enkrypt-refresh-cache", headers),
        echo=(("x-enkrypt-correlation-id", head.request_id),),
    )


def to_chat(endpoint: Endpoint, body: Json) -> Json:
    if body.get("context") is not None and body.get("enkrypt_context") is None:
        body = body | {"enkrypt_context": body["context"]}
    return {k: v for k, v in body.items() if k != "context"}


def add_empty_prompt(call: Call, documents: Mapping[int, Json]) -> Json:
    return {**documents[0], "prompt": []}


def make_error_response(
    error: ProxyError, request_id: str, *, ends_stream: bool = False
) -> base.ErrorResponse:
    """Return an error. A bad credential is refused in the form of Enkrypt's gateway."""
    if isinstance(error, Unauthorized):
        return base.ErrorResponse(401, {"message": "Unauthorized", "request_id": request_id})
    body = add_guard_results({"error": openai.make_error_object(error)}, ())
    return base.ErrorResponse(error.status, body, openai.make_retry_headers(error))


ENKRYPT = base.Dialect(
    name="enkrypt",
    fields=FIELDS,
    client=base.ClientDialect(
        routes={
            ("POST", "/ai-proxy/completions"): "completions",
            ("POST", "/ai-proxy/chat/completions"): "chat",
        },
        key_headers=("apikey",),
        header_prefix="x-enkrypt-",
        read_headers=read_enkrypt_headers,
        make_error_response=make_error_response,
        rules=openai.CHECKS_BY_ENDPOINT,
        ruled_fields=openai.RULED_FIELDS,
        to_chat=to_chat,
        aliases={"context": "enkrypt_context"},
        merge_documents=add_empty_prompt,
        add_guard_results=add_guard_results,
        streams_guard_results=True,  # by its API document, both objects have the same shape
    ),
    server=base.UpstreamDialect(
        prefix="/ai-proxy",
        paths={"completions": "/completions", "chat": "/chat/completions"},
        key_header="apikey",
        required_headers=("x-enkrypt-deployment",),
    ),
)
