"""The question to an upstream: path, headers and body, made from what policy saw and no more."""

from __future__ import annotations

from urllib.parse import urlsplit

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.base import Dialect
from proxy.dialects.bounds import most_answered
from proxy.dialects.parameters import apply_parameters
from proxy.dialects.pieces import dump_pieces
from proxy.dialects.translation import blamed, names_of, translate
from proxy.errors import BadField
from proxy.frozen import frozen
from proxy.offload import LARGE_BYTES
from proxy.types import UNCHANGED, Call, Changes, Endpoint, Json, Target, Translated, Upstream


@frozen
class UpstreamRequest:
    """One request as an upstream of its dialect wants it. ``endpoint`` is the target's;
    ``most_answered`` are the tokens that all answers to it may have."""

    url: str
    headers: dict[str, str]
    body: bytes
    endpoint: Endpoint
    dropped: tuple[str, ...]
    most_answered: int


def target_endpoint(call: Call, target: Target, upstream: Dialect) -> Endpoint:
    """Return the endpoint of the target that serves the call: its only one, else the client's."""
    asked = call.head.endpoint
    if asked == "embeddings" or target.endpoint is None:
        other: Endpoint = "chat" if asked == "completions" else "completions"
        here = upstream.server.paths
        return other if asked not in here and other in here and asked != "embeddings" else asked
    return target.endpoint


def translated(
    call: Call,
    target: Target,
    from_dialect: Dialect,
    to_dialect: Dialect,
    changes: Changes = UNCHANGED,
) -> Translated:
    """Return the body for one target, as rules have changed it: it is what limits claim by, and
    what is sent, and kept with the call unless that is large. The dialects are those of the call
    and of the target. Raises ``BadField``, by the client's own name, when it cannot be
    expressed."""
    for known, known_changes, made in call.translations:
        if known is target and known_changes is changes:
            return made
    endpoint = target_endpoint(call, target, to_dialect)
    if endpoint not in to_dialect.server.paths:
        raise BadField("model", f"is served by an upstream that has no {endpoint} endpoint")
    try:
        made = translate(
            from_dialect, to_dialect, (call.head.endpoint, endpoint), call.body, target, changes
        )
    except BadField as error:
        raise BadField(blamed(error.param or "", call.names), error.problem) from None
    if call.size <= LARGE_BYTES:
        call.translations.append((target, changes, made))
    return made


def parameters(call: Call, target: Target, changes: Changes) -> Json:
    """Return a call's body as rules have changed it for a target, in OpenAI's form."""
    if not changes:
        return call.body
    to_dialect = DIALECTS[target.upstream.dialect]
    endpoint = target_endpoint(call, target, to_dialect)
    known = to_dialect.fields.get(endpoint, {}).keys() | target.upstream.accepts
    body = apply_parameters(endpoint, {**call.body, "model": target.model}, changes, known)
    del body["model"]
    return {**body, "model": call.body["model"]} if "model" in call.body else body


def build_request(
    call: Call,
    target: Target,
    from_dialect: Dialect,
    to_dialect: Dialect,
    changes: Changes = UNCHANGED,
) -> UpstreamRequest:
    """Write the call, as rules have changed it, for one target.

    Raises ``BadField`` when the target's dialect cannot express it.
    """
    endpoint = target_endpoint(call, target, to_dialect)
    fit_for = translated(call, target, from_dialect, to_dialect, changes)
    body = fit_for.body
    if call.stream and to_dialect.server.streams and to_dialect.server.usage_option:
        options = {**(body.get("stream_options") or {}), "include_usage": True}
        body = {**body, "stream_options": options}
    return UpstreamRequest(
        url=_base(target.upstream, to_dialect) + to_dialect.server.paths[endpoint],
        headers=_headers(target.upstream, to_dialect),
        body=orjson.dumps(body) if call.size <= LARGE_BYTES else dump_pieces(body),
        endpoint=endpoint,
        dropped=_by_client(call, fit_for.dropped),
        most_answered=answered(call, fit_for),
    )


def answered(call: Call, sent: Translated) -> int:
    """Return the most tokens that all answers to a call may have, by the body that is sent."""
    if call.head.endpoint == "embeddings":
        return 0
    return most_answered(sent.body, sent.obeyed, takes_zero=sent.takes_zero)


def _by_client(call: Call, dropped: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names by which the client's body has the fields that are dropped."""
    if not dropped:
        return dropped
    names = (alias for name in dropped for alias in names_of(name, call.names))
    return tuple(dict.fromkeys(names))


def beside(upstream: Upstream, dialect: Dialect, path: str) -> tuple[str, dict[str, str]]:
    """Return the URL of another path of an upstream, and the headers of a request to it."""
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
