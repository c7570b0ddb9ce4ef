"""The question to an upstream: path, headers and body, made from what policy saw and no more."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson

from proxy.dialects.base import Dialect
from proxy.dialects.changing import changed
from proxy.dialects.crossing import fit
from proxy.errors import BadField
from proxy.types import UNCHANGED, Call, Changes, Endpoint, Target, Upstream


@dataclass(frozen=True, slots=True)
class Question:
    """One request as an upstream of its dialect wants it. ``endpoint`` is the target's."""

    url: str
    headers: dict[str, str]
    body: bytes
    endpoint: Endpoint
    dropped: tuple[str, ...]


def target_endpoint(call: Call, target: Target, upstream: Dialect) -> Endpoint:
    """Say which endpoint of the target serves the call: its only one, else the client's own."""
    asked = call.door.endpoint
    if asked == "embeddings" or target.endpoint is None:
        other: Endpoint = "chat" if asked == "completions" else "completions"
        here = upstream.server.paths
        return other if asked not in here and other in here and asked != "embeddings" else asked
    return target.endpoint


def ask(
    call: Call, target: Target, asked: Dialect, upstream: Dialect, changes: Changes = UNCHANGED
) -> Question:
    """Write the call, as rules have changed it, for one target.

    Raises ``BadField`` when the target's dialect cannot express it.
    """
    endpoint = target_endpoint(call, target, upstream)
    if endpoint not in upstream.server.paths:
        raise BadField("model", f"is served by an upstream that has no {endpoint} endpoint")
    ways = (call.door.endpoint, endpoint)
    named = {**changed(call.door.endpoint, call.body, changes), "model": target.model}
    fitted = fit(asked, upstream, ways, named, target.upstream.accepts)
    body = fitted.body
    if call.stream and upstream.server.streams and upstream.server.usage_option:
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return Question(
        url=_base(target.upstream, upstream) + upstream.server.paths[endpoint],
        headers=_headers(target.upstream, upstream),
        body=orjson.dumps(body),
        endpoint=endpoint,
        dropped=fitted.dropped,
    )


def beside(upstream: Upstream, dialect: Dialect, path: str) -> tuple[str, dict[str, str]]:
    """Give the address of something else that an upstream has, and the headers to ask it with."""
    return _base(upstream, dialect) + path, _headers(upstream, dialect)


def _base(upstream: Upstream, dialect: Dialect) -> str:
    base = upstream.base_url.rstrip("/")
    return base if urlsplit(base).path else base + dialect.server.prefix


def _headers(upstream: Upstream, dialect: Dialect) -> dict[str, str]:
    """By allow-list: ours and the policy's. No header of the client is among them."""
    headers = {
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "headrace",
    }
    headers.update((name.lower(), value.reveal()) for name, value in upstream.headers)
    if upstream.api_key is not None:
        name, value = dialect.server.authorize(upstream.api_key.reveal())
        headers[name] = value
    return headers
