"""Calls for paths that are passed on: what is read of them, and what is sent to an upstream.

JSON is read as that of any call: strictly, for guards, which may change it. Everything else is
bytes that nobody here reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from proxy.dialects import DIALECTS
from proxy.dialects.base import Dialect
from proxy.dialects.passthrough.form import FormUpload, is_form
from proxy.dialects.paths import REDUNDANT, with_model_of_path
from proxy.dialects.permitted import declared_fields, permitted
from proxy.dialects.pieces import dump
from proxy.dialects.request_headers import SETTINGS, forwarded_headers
from proxy.dialects.upstream_request import MODEL, UpstreamRequest
from proxy.dialects.ways import beside
from proxy.errors import BadRequest, InvalidField
from proxy.errors.field_problems import BAD_NAME
from proxy.errors.words import MAX_NAME, ascii_word
from proxy.fields.checks import check_spelling
from proxy.money.estimate import field_quarters
from proxy.runtime.offload import LARGE_BYTES
from proxy.types import Call, Json, RequestHead, Target, Upstream
from proxy.types.passthrough import (
    MOST_VALUE,
    BoundedUpload,
    PassthroughPath,
    PassthroughRequest,
    Upload,
    fill,
)
from proxy.types.way import MODEL_FREE_METHODS

MOST_PAIRS = 64  # of one query
JSON = "application/json"
MODEL_FIELD = {"model": "model"}
"""What of a body is read here: under any spelling of its own a server may read it, too."""
CLIENTS_PREFIX = "/v1"
FORWARDED_HEADERS = ("openai-beta",)
"""Headers of a client that every upstream gets, if they are short words."""
_WORD = r"[A-Za-z0-9!#$&^_.+-]{1,127}"
_MEDIA_TYPE = re.compile(rf"{_WORD}/{_WORD} *(?:;[\x20-\x7e]*)?")
_MOST_TYPE = 256  # characters of a media type
_NAMES_JSON = re.compile(r"(?:.+/|.*\+)json")


def read_passthrough(head: RequestHead, body: Json, size: int = 0, caller: str = "") -> Call:
    """Return the call whose body is read. Raise ``InvalidField``, also for a model that is spelled
    as servers in Go read it too: it would be the client's own choice."""
    for name in body:
        if name not in MODEL_FIELD:
            check_spelling(MODEL_FIELD, MODEL_FIELD, name)
    body, warnings = with_model_of_path(head, body)
    model = body.get("model")
    _check_names(model=model, user=body.get("user"), deployment=head.deployment)
    return Call(
        head=head,
        body=body,
        requested_models=() if model is None else (model,),
        timeout_s=head.timeout_s,
        warnings=warnings,
        size=size,
        field_quarters=field_quarters(body) if size > LARGE_BYTES else {},
        scheduling_key=caller,
    )


def _check_names(**names: object) -> None:
    for param, name in names.items():
        if name is not None and not (type(name) is str and len(name) <= MAX_NAME):
            raise InvalidField(param, BAD_NAME)


def unread_call(head: RequestHead, upload: Upload, caller: str) -> Call:
    """Return the call whose body nobody reads here."""
    model = head.parameter("deployment")
    _check_names(model=model, deployment=head.deployment)
    return Call(
        head=head,
        body={},
        requested_models=() if model is None else (model,),
        timeout_s=head.timeout_s,
        scheduling_key=caller,
        upload=upload,
    )


def media_type_of(given: str) -> str:
    """Return the type of a body as it is passed on. Raise ``InvalidField`` for what is none."""
    if len(given) > _MOST_TYPE or _MEDIA_TYPE.fullmatch(given) is None:
        message = f"must be a media type of at most {_MOST_TYPE} characters"
        raise InvalidField("content-type", message)
    return given


def names_json(media_type: str) -> bool:
    """True if a body of a type is JSON by whatever name: some server would read it as such."""
    return _NAMES_JSON.fullmatch(media_type.partition(";")[0].strip().lower()) is not None


def build_passthrough(
    call: Call, passed: PassthroughRequest, path: PassthroughPath, target: Target, dialect: Dialect
) -> UpstreamRequest:
    """Write a call for a target, whose dialect that is. Raise ``InvalidField`` for what no client
    may say, and ``BadRequest`` for a query that cannot be read."""
    upstream, upload = target.upstream, call.upload
    query, left_out = _query(passed.query, path)
    url, headers = _place(passed, path, upstream, dialect)
    requires_model = MODEL not in url and _is_model_call(call, path, target)
    url = url.replace(MODEL, quote(target.model, ""))
    if query:
        url += ("&" if "?" in url else "?") + query
    body, dropped, media_type = b"", list[str](), ""
    if upload is not None:
        media_type = passed.media_type
    elif call.size:
        body, dropped = _body(call, path, target, requires_model=requires_model)
        media_type = JSON
    if upload is not None and is_form(media_type):
        declared = declared_fields(path, upstream)
        upload = FormUpload(upload, media_type, target, declared, requires_model=requires_model)
    return UpstreamRequest(
        url=url,
        headers=_headers(headers, call.head.headers, target.upstream, media_type),
        body=body,
        endpoint="passthrough",
        dropped=(*dropped, *(["query parameters"] if left_out else [])),
        most_answered=0,
        method=call.head.method,
        upload=None if upload is None else BoundedUpload(upload, path.most_bytes),
        fresh=not path.may_repeat(call.head.method),
    )


def _is_model_call(call: Call, path: PassthroughPath, target: Target) -> bool:
    """Return True if the upstream would choose a model if the body named none. Paths with names,
    such as ``/v1/batches/{id}/cancel``, and targets with a price of 0 take no model."""
    return not (call.head.method in MODEL_FREE_METHODS or path.names or target.is_free)


def _body(
    call: Call, path: PassthroughPath, target: Target, *, requires_model: bool
) -> tuple[bytes, list[str]]:
    """Return the body as JSON, with the name of the target's model, and what policy drops of it."""
    body, dropped = permitted(call.body, target.upstream, target.model)
    declared = declared_fields(path, target.upstream)
    if declared is not None:
        dropped += [ascii_word(name) for name in body if name not in declared]
        body = {name: value for name, value in body.items() if name in declared}
    if requires_model or "model" in body:
        body["model"] = target.model
    return dump(body, call.size), dropped


def _query(query: str, path: PassthroughPath) -> tuple[str, bool]:
    """Return what of a query passes, and whether anything does not."""
    if not query:
        return "", False
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_PAIRS, errors="strict")
    except ValueError:
        message = f"The query string must be valid UTF-8 with at most {MOST_PAIRS} parameters."
        raise BadRequest(message, param="query") from None
    for name, value in pairs:
        if name in path.queries and len(value) > MOST_VALUE:
            raise InvalidField(name, f"must have at most {MOST_VALUE} characters")
    kept = [(name, value) for name, value in pairs if name in path.queries]
    known = path.queries | REDUNDANT
    return urlencode(kept), any(name not in known for name, _ in pairs)


def _place(
    passed: PassthroughRequest, path: PassthroughPath, upstream: Upstream, dialect: Dialect
) -> tuple[str, dict[str, str]]:
    """Return the URL of a request, without what its client asks in a query, and the headers that
    each request to the upstream has."""
    asked = passed.path
    if path.upstream_route is None and asked.startswith(CLIENTS_PREFIX + "/"):
        return beside(upstream, dialect, asked.removeprefix(CLIENTS_PREFIX))
    _, headers = beside(upstream, dialect, "")
    base, query = upstream.base_url.rstrip("/"), f"?{upstream.query}" if upstream.query else ""
    if path.upstream_route is not None:
        parts = urlsplit(base)
        match = path.fits(asked)
        values = match.groupdict() if match is not None else {}
        base, asked = f"{parts.scheme}://{parts.netloc}", fill(path.upstream_route, values)
    return base + asked + query, headers


def _headers(
    ours: dict[str, str], given: Mapping[str, str], upstream: Upstream, media_type: str
) -> dict[str, str]:
    """Return the headers of a request: ours and the policy's, and the few of a client that pass."""
    server = DIALECTS[upstream.dialect].server
    passed = forwarded_headers(given, server, upstream.accepts)
    passed |= {
        name: given[name] for name in FORWARDED_HEADERS if SETTINGS.fullmatch(given.get(name, ""))
    }
    headers = {**server.usual_headers, **passed, **ours, "accept": "*/*"}
    del headers["content-type"]
    return headers | ({"content-type": media_type} if media_type else {})
