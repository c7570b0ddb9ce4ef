"""Reads headers of other gateways (LiteLLM, Helicone, OpenRouter, Cloudflare) in any dialect.

Headers with a meaning here apply unless the proxy's own header is set. Headers that describe the
application become properties of the log line and the span. Others are ignored with a warning.

``GET /model/info`` is the list of models in LiteLLM's form, without upstreams and prices.

Sources: LiteLLM's page on models; the pages on request headers of LiteLLM, Helicone, OpenRouter and
Cloudflare's AI Gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import orjson

from proxy.dialects.base import Headers
from proxy.dialects.request_headers import Tag, check_tags, make_header_error, parse_timeout_s
from proxy.dialects.wire.strict_json import as_object, parse_rejecting_duplicates
from proxy.errors.words import (
    MAX_ID,
    MAX_NAME,
    MAX_WORD,
    BoundedText,
    first_items,
    join_names,
    shorten,
    shorten_to_ascii,
)
from proxy.types import Call, Json, RequestHead

Meaning = Literal["user", "session", "tags", "seconds", "milliseconds", "metadata", "cache"]
Property = tuple[BoundedText, BoundedText]

HEADER_MEANINGS: dict[str, Meaning] = {
    "x-litellm-end-user-id": "user",
    "x-litellm-customer-id": "user",
    "x-litellm-tags": "tags",
    "x-litellm-timeout": "seconds",
    "x-litellm-session-id": "session",
    "x-litellm-spend-logs-metadata": "metadata",
    "helicone-user-id": "user",
    "helicone-session-id": "session",
    "helicone-cache-enabled": "cache",
    "cf-aig-metadata": "metadata",
    "cf-aig-request-timeout": "milliseconds",
    "cf-aig-skip-cache": "cache",
}
"""Meaning of headers. ``CacheControl`` reads those of the cache."""

PROPERTY_NAMES: dict[str, str] = {
    "helicone-session-name": "session-name",
    "helicone-session-path": "session-path",
    "http-referer": "http-referer",
    "x-title": "x-title",
    "x-openrouter-title": "x-title",
}
"""Names of properties by header."""

PROPERTIES_HEADER = "x-headrace-properties"
PROPERTY_PREFIX = "helicone-property-"
"""Prefix of headers whose remaining name is the name of a property."""
WARNED_PREFIXES = ("x-litellm-", "helicone-", "cf-aig-")
"""Prefixes of headers that cause a warning if they have no meaning here."""
GATEWAY_HEADERS = re.compile(
    "\n(?:" + "|".join((*WARNED_PREFIXES, *PROPERTY_NAMES, PROPERTIES_HEADER)) + ")"
)
"""Matches the joined header names of a request with headers of other gateways."""
INFO_PATHS = ("/model/info", "/v1/model/info")
_SIGN = re.compile("[=:]")


def read_other_gateway_headers(headers: Headers, head: RequestHead) -> RequestHead:
    """Return the head with the content of other gateways' headers. Raises ``BadRequest``.

    Properties are read from ``head.headers``, without credentials, because they are logged.
    """
    known = HEADER_MEANINGS.keys() | PROPERTY_NAMES.keys()
    unknown = sorted(name for name in headers.keys() - known if name.startswith(WARNED_PREFIXES))
    ignored = [name for name in unknown if not name.startswith(PROPERTY_PREFIX)]
    headers = head.headers
    meanings = {name: HEADER_MEANINGS[name] for name in headers if name in HEADER_MEANINGS}
    warning = f"headers ignored because the policy decides: {join_names(ignored)}"
    session = _find_header_by_meaning("session", headers, meanings)
    user_header = None if head.user else _find_header_by_meaning("user", headers, meanings)
    user = headers[user_header] if user_header else head.user
    if user_header and user and not (len(user) <= MAX_NAME and user.isprintable()):
        raise make_header_error(user_header, f"must have at most {MAX_NAME} printable characters")
    return replace(
        head,
        tags=head.tags + _read_tags(headers, meanings),
        user=user,
        session=shorten(headers[session], MAX_ID) if session else None,
        timeout_s=_read_timeout_s(headers, meanings) if head.timeout_s is None else head.timeout_s,
        properties=tuple(first_items(_iter_properties(headers, meanings))),
        warnings=(*head.warnings, *([warning] if ignored else ())),
    )


def move_metadata_tags(head: RequestHead, body: Json) -> tuple[RequestHead, Json]:
    """Move LiteLLM's ``metadata.tags`` from the body to the head.

    Upstreams accept only texts in ``metadata``. Raises ``BadRequest`` for bad tags.
    """
    metadata = body["metadata"]
    texts = metadata.get("tags") if isinstance(metadata, dict) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return head, body
    tags = check_tags("metadata.tags", [_parse_tag(text) for text in texts])
    metadata = {name: value for name, value in metadata.items() if name != "tags"}
    body = {name: value for name, value in body.items() if name != "metadata"}
    head = replace(head, tags=head.tags + tags)
    return head, {**body, "metadata": metadata} if metadata else body


def _parse_tag(text: str) -> Tag:
    """Return the tag in ``name=value``, LiteLLM's ``name:value``, or a label."""
    name, *value = _SIGN.split(text, maxsplit=1)
    return name.strip(), value[0].strip() if value else None


def _find_header_by_meaning(
    meaning: Meaning, headers: Headers, meanings: dict[str, Meaning]
) -> str | None:
    return next((name for name in meanings if meanings[name] == meaning and headers[name]), None)


def _read_tags(headers: Headers, meanings: dict[str, Meaning]) -> tuple[Tag, ...]:
    tags: list[Tag] = []
    for name in (name for name, meaning in meanings.items() if meaning == "tags"):
        parts = (part.strip() for part in headers[name].split(","))
        tags += check_tags(name, [_parse_tag(part) for part in parts if part])
    return tuple(tags)


def _read_timeout_s(headers: Headers, meanings: dict[str, Meaning]) -> float | None:
    times = [
        parse_timeout_s(name, headers[name], 1 if meaning == "seconds" else 1000)
        for name, meaning in meanings.items()
        if meaning in {"seconds", "milliseconds"} and headers[name].strip()
    ]
    return min(times, default=None)


def _iter_properties(headers: Headers, meanings: dict[str, Meaning]) -> Iterator[Property]:
    for part in first_items(headers.get(PROPERTIES_HEADER, "").split(",")):
        name, _, value = part.partition("=")
        if name.strip():
            yield shorten_to_ascii(name.strip(), MAX_WORD), shorten(value.strip(), MAX_NAME)
    for name, value in headers.items():
        if name in PROPERTY_NAMES:
            yield BoundedText(PROPERTY_NAMES[name]), shorten(value, MAX_NAME)
        elif name.startswith(PROPERTY_PREFIX) and name != PROPERTY_PREFIX:
            property_name = name.removeprefix(PROPERTY_PREFIX)
            yield shorten_to_ascii(property_name, MAX_WORD), shorten(value, MAX_NAME)
        elif meanings.get(name) == "metadata":
            yield from _parse_metadata_header(value)


def _parse_metadata_header(header: str) -> Iterator[Property]:
    """Yield the scalar members of a JSON object. Malformed JSON is ignored."""
    try:
        members = parse_rejecting_duplicates(header.encode())
    except ValueError:
        return
    for name, value in first_items(as_object(members).items()):
        if name.strip() and isinstance(value, (str, int, float)):
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            yield shorten_to_ascii(name, MAX_WORD), shorten(text, MAX_NAME)


def make_model_list_for_path(call: Call, documents: Mapping[int, Json]) -> Json:
    """Return a list of models, in LiteLLM's form on its paths."""
    data = documents.get(0, {})
    if call.head.route not in INFO_PATHS:
        return data
    rows: list[Json] = []
    for model in data["data"]:
        name = model["id"]
        info = {"id": name, "db_model": False, "litellm_provider": model["owned_by"]}
        rows.append({"model_name": name, "litellm_params": {"model": name}, "model_info": info})
    return {"data": rows}
