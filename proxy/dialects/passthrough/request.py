"""Passthrough requests.

JSON is parsed strictly, and guards may change it. Other bodies are forwarded unread, except forms,
whose fields are checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from proxy.dialects import DIALECTS, check_name_lengths
from proxy.dialects.passthrough.form import FormUpload, can_be_form
from proxy.dialects.request_headers import (
    FORWARDABLE_VALUE,
    REDUNDANT_PARAMETERS,
    insert_model_from_path,
    select_forwarded_headers,
)
from proxy.dialects.requests.field_filter import apply_field_rules, list_declared_fields
from proxy.dialects.requests.upstream_request import (
    MODEL_PLACEHOLDER,
    UpstreamRequest,
    make_url_and_headers,
)
from proxy.dialects.wire.strict_json import dump
from proxy.errors import BadRequest, InvalidField
from proxy.errors.words import shorten_to_ascii
from proxy.fields.checks import check_spelling
from proxy.money.estimate import estimate_field_quarters
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import Call, Json, RequestHead, Target, Upstream
from proxy.types.endpoints import MODEL_FREE_METHODS
from proxy.types.passthrough import (
    MAX_VALUE_CHARS,
    BoundedUpload,
    PassthroughPath,
    PassthroughRequest,
    Upload,
    fill_route,
)

MAX_QUERY_PARAMETERS = 64
JSON_TYPE = "application/json"
MODEL_FIELD = {"model": "model"}
"""The field with the model. Some servers also read other spellings of its name."""
CLIENT_PREFIX = "/v1"
FORWARDED_HEADERS = ("openai-beta",)
"""Headers of a client for all upstreams, if they are short words."""
_WORD = r"[A-Za-z0-9!#$&^_.+-]{1,127}"
_MEDIA_TYPE = re.compile(rf"{_WORD}/{_WORD} *(?:;[\x20-\x7e]*)?")
_MAX_MEDIA_TYPE_LENGTH = 256
_ANY_JSON = re.compile(r"(?:.+/|.*\+)json")


def read_passthrough_call(head: RequestHead, body: Json, size: int = 0, caller: str = "") -> Call:
    """Return the call of a JSON body.

    Raises ``InvalidField``, also for a spelling of ``model`` that servers in Go accept.
    """
    for name in body:
        if name not in MODEL_FIELD:
            check_spelling(MODEL_FIELD, MODEL_FIELD, name)
    body, warnings = insert_model_from_path(head, body)
    model = body.get("model")
    check_name_lengths("model", model)
    check_name_lengths("user", body.get("user"))
    check_name_lengths("deployment", head.deployment)
    return Call(
        head=head,
        body=body,
        requested_models=() if model is None else (model,),
        timeout_s=head.timeout_s,
        warnings=warnings,
        size=size,
        field_quarters=estimate_field_quarters(body) if size > LARGE_BYTES else {},
        scheduling_key=caller,
    )


def make_upload_call(head: RequestHead, upload: Upload, caller: str) -> Call:
    """Return the call of a body that is forwarded unread."""
    model = head.get_url_parameter("deployment")
    check_name_lengths("model", model)
    check_name_lengths("deployment", head.deployment)
    return Call(
        head=head,
        body={},
        requested_models=() if model is None else (model,),
        timeout_s=head.timeout_s,
        scheduling_key=caller,
        upload=upload,
    )


def check_media_type_syntax(media_type: str) -> str:
    """Return a media type. Raise ``InvalidField`` if it is malformed."""
    if len(media_type) > _MAX_MEDIA_TYPE_LENGTH or _MEDIA_TYPE.fullmatch(media_type) is None:
        message = f"must be a media type of at most {_MAX_MEDIA_TYPE_LENGTH} characters"
        raise InvalidField("content-type", message)
    return media_type


def can_be_json(media_type: str) -> bool:
    """Return True if some server may read a body of a media type as JSON."""
    return _ANY_JSON.fullmatch(media_type.partition(";")[0].strip().lower()) is not None


def build_passthrough_request(
    call: Call, request: PassthroughRequest, path: PassthroughPath, target: Target
) -> UpstreamRequest:
    """Return the request for a target. Raises ``InvalidField`` or ``BadRequest``."""
    upstream, upload = target.upstream, call.upload
    query, dropped_query = _drop_undeclared_parameters(request.query, path)
    url, headers = _make_url_and_headers(request, path, upstream)
    is_free = call.head.method in MODEL_FREE_METHODS or path.parameter_names or target.costs_nothing
    # ``/v1/batches/{id}/cancel`` uses no model.
    requires_model = MODEL_PLACEHOLDER not in url and not is_free
    url = url.replace(MODEL_PLACEHOLDER, quote(target.model, ""))
    if query:
        url += ("&" if "?" in url else "?") + query
    body, dropped, media_type = b"", list[str](), ""
    if upload is not None:
        media_type = request.media_type
    elif call.size:
        body, dropped = _make_body(call, path, target, requires_model=requires_model)
        media_type = JSON_TYPE
    if upload is not None and can_be_form(media_type):
        declared = list_declared_fields(path, upstream)
        upload = FormUpload(upload, media_type, target, declared, requires_model=requires_model)
    return UpstreamRequest(
        url=url,
        headers=_make_headers(headers, call.head.headers, target.upstream, media_type),
        body=body,
        endpoint="passthrough",
        dropped_fields=(*dropped, *(["query parameters"] if dropped_query else [])),
        max_output_tokens=0,
        method=call.head.method,
        upload=None if upload is None else BoundedUpload(upload, path.max_bytes),
        needs_new_connection=not path.may_repeat(call.head.method),
    )


def _make_body(
    call: Call, path: PassthroughPath, target: Target, *, requires_model: bool
) -> tuple[bytes, list[str]]:
    body, dropped = apply_field_rules(call.body, target.upstream, target.model)
    declared = list_declared_fields(path, target.upstream)
    if declared is not None:
        dropped += [shorten_to_ascii(name) for name in body if name not in declared]
        body = {name: value for name, value in body.items() if name in declared}
    if requires_model or "model" in body:
        body["model"] = target.model
    return dump(body, call.size), dropped


def _drop_undeclared_parameters(query: str, path: PassthroughPath) -> tuple[str, bool]:
    """Return the query for the upstream, and whether client parameters were dropped."""
    if not query:
        return "", False
    maximum = MAX_QUERY_PARAMETERS
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=maximum, errors="strict")
    except ValueError:
        message = f"The query string must be valid UTF-8 with at most {maximum} parameters."
        raise BadRequest(message, param="query") from None
    for name, value in pairs:
        if name in path.queries and len(value) > MAX_VALUE_CHARS:
            raise InvalidField(name, f"must have at most {MAX_VALUE_CHARS} characters")
    forwarded = [(name, value) for name, value in pairs if name in path.queries]
    allowed = path.queries | REDUNDANT_PARAMETERS
    return urlencode(forwarded), any(name not in allowed for name, _ in pairs)


def _make_url_and_headers(
    request: PassthroughRequest, path: PassthroughPath, upstream: Upstream
) -> tuple[str, dict[str, str]]:
    """Return the URL without the client's query, and the headers of all requests to an upstream."""
    route = request.path
    if path.upstream_route is None and route.startswith(CLIENT_PREFIX + "/"):
        return make_url_and_headers(upstream, route.removeprefix(CLIENT_PREFIX))
    _, headers = make_url_and_headers(upstream, "")
    base, query = upstream.base_url.rstrip("/"), f"?{upstream.query}" if upstream.query else ""
    if path.upstream_route is not None:
        parts = urlsplit(base)
        match = path.match_path(route)
        values = match.groupdict() if match is not None else {}
        base, route = f"{parts.scheme}://{parts.netloc}", fill_route(path.upstream_route, values)
    return base + route + query, headers


def _make_headers(
    upstream_headers: dict[str, str], client: Mapping[str, str], upstream: Upstream, media_type: str
) -> dict[str, str]:
    server = DIALECTS[upstream.dialect].server
    forwarded = select_forwarded_headers(client, server, upstream.accepts)
    forwarded |= {
        name: client[name]
        for name in FORWARDED_HEADERS
        if FORWARDABLE_VALUE.fullmatch(client.get(name, ""))
    }
    headers = {**server.default_headers, **forwarded, **upstream_headers, "accept": "*/*"}
    del headers["content-type"]
    return headers | ({"content-type": media_type} if media_type else {})
