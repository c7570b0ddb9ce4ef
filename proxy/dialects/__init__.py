"""The wire formats that clients and upstreams speak: one file each, and one line in ``DIALECTS``.

Nothing in this room reads or writes a socket.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from proxy.dialects import (
    anthropic,
    enkrypt,
    fireworks,
    multimodel,
    openai,
    portkey,
    request_headers,
    scale,
)
from proxy.dialects.base import Client, Dialect, Headers
from proxy.dialects.bounds import GROUPS, SPELLINGS, check_groups, checked_fields
from proxy.dialects.fields import Fields, check_body
from proxy.dialects.request_headers import joined_names
from proxy.dialects.translation import ALIKE
from proxy.errors import BadField, MethodNotAllowed, NotFound, Refused
from proxy.estimate import field_quarters
from proxy.frozen import frozen
from proxy.offload import LARGE_BYTES
from proxy.types import EPOCH, Call, Endpoint, Json, RequestHead, Secret
from proxy.types.target import CREDENTIAL_WORDS
from proxy.words import MAX_NAME

DIALECTS: dict[str, Dialect] = {
    "openai": openai.OPENAI,
    "portkey": portkey.PORTKEY,
    "fireworks": fireworks.FIREWORKS,
    "scale": scale.SCALE,
    "multimodel": multimodel.MULTIMODEL,
    "enkrypt": enkrypt.ENKRYPT,
    "anthropic": anthropic.ANTHROPIC,
}

CHECKED_FIELDS: dict[str, dict[Endpoint, Fields]] = {
    name: {
        endpoint: checked_fields(dialect.types.get(endpoint, fields))
        for endpoint, fields in dialect.fields.items()
    }
    for name, dialect in DIALECTS.items()
}
"""The fields that are checked of each request before anybody looks at it."""


HEADER_PREFIXES: dict[str, Dialect] = {
    dialect.client.header_prefix: dialect
    for dialect in DIALECTS.values()
    if dialect.client.header_prefix is not None
}


def _sharing(dialect: Dialect) -> dict[str, Dialect]:
    """Return the dialects that have the very same routes, by what their joined headers hold."""
    return {
        f"\n{prefix}": other
        for prefix, other in HEADER_PREFIXES.items()
        if other is not dialect and other.client.routes == dialect.client.routes
    }


SHARING: dict[str, dict[str, Dialect]] = {
    name: _sharing(dialect) for name, dialect in DIALECTS.items()
}
"""By the name of a dialect: those that share its routes and are told apart by their headers."""
_KNOWN_BY_HEADERS = {other.name for sharing in SHARING.values() for other in sharing.values()}
ROUTES: dict[tuple[str, str], tuple[str, Endpoint]] = {
    route: (name, endpoint)
    for name, dialect in DIALECTS.items()
    if name not in _KNOWN_BY_HEADERS
    for route, endpoint in dialect.client.routes.items()
}
PATHS: dict[str, str] = {path: name for (_, path), (name, _) in ROUTES.items()}

UNSTREAMED: frozenset[Endpoint] = frozenset({"embeddings", "count_tokens"})
_CREDENTIAL = re.compile("|".join(CREDENTIAL_WORDS))
USUAL_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host"}
    | {"traceparent", "user-agent", "x-forwarded-for", "x-request-id"}
)
"""Headers that most requests have: none of these names is a credential's."""


def dialect_of(path: str, headers: Headers) -> Dialect:
    """Return the dialect of a request by its path and headers; OpenAI's for an unknown path."""
    return spoken_by(path, headers)[0]


def spoken_by(path: str, headers: Headers) -> tuple[Dialect, str]:
    """Return the dialect of a request, and the joined names of its headers."""
    names = joined_names(headers)
    return _spoken(PATHS.get(path) or _closest(path, headers), names), names


def _closest(path: str, headers: Headers) -> str:
    """Return the dialect of a path that is not served: that of the path it stands under, or of a
    header that all clients of one dialect send. It says so in its own words."""
    for known, name in PATHS.items():
        if path.startswith(known + "/"):
            return name
    by_header = (name for name, each in DIALECTS.items() if each.client.known_by in headers)
    return next(by_header, "openai")


def _spoken(name: str, names: str) -> Dialect:
    """Return the dialect of a path that belongs to ``name``, by the joined names of headers."""
    for mark, other in SHARING[name].items():
        if mark in names:
            return other
    return DIALECTS[name]


@frozen
class Received:
    """What we note of a request ourselves: see ``RequestHead``; and what ``spoken_by`` has found,
    where it was asked before."""

    request_id: str
    nonce: str = ""
    at: datetime = EPOCH
    spoken: tuple[Dialect, str] | None = None


def parse_head(method: str, path: str, headers: Headers, received: Received) -> RequestHead:
    """Read what the head of a request says. Raises a ``Refused`` for what cannot be served."""
    if (method, path) not in ROUTES:
        raise _not_served(path)
    endpoint = ROUTES[method, path][1]
    dialect, names = received.spoken or spoken_by(path, headers)
    client = dialect.client
    credential = client.credential(headers)
    head = RequestHead(
        dialect=dialect.name,
        endpoint=endpoint,
        route=path,
        request_id=received.request_id,
        nonce=received.nonce,
        headers=_without_credentials(headers, credential),
        at=received.at,
        digest=None if credential is None else credential.digest,
    )
    if request_headers.PREFIX in names or "traceparent" in headers:
        head = request_headers.common(headers, head)
    return head if client.read_headers is None else client.read_headers(headers, head)


def _not_served(path: str) -> Refused:
    """Return the refusal of a request for which there is no route."""
    allowed = sorted(verb for verb, known in ROUTES if known == path)
    return MethodNotAllowed(", ".join(allowed)) if allowed else NotFound("There is no such path.")


def _without_credentials(headers: Headers, credential: Secret | None) -> Headers:
    """Return the headers that carry no credential, the caller's own under no name."""
    kept = dict(headers)
    for name in headers.keys() - USUAL_HEADERS:
        if _CREDENTIAL.search(name) is not None:
            del kept[name]
    own = "" if credential is None else credential.reveal()
    if own and own in "\n".join(kept.values()):
        kept = {name: value for name, value in kept.items() if own not in value}
    return kept


def read_call(head: RequestHead, body: Json, size: int = 0, caller: str = "") -> Call:
    """Check each field of a body and put it into OpenAI's form. Raises ``BadField``.

    ``size`` is that of the body in bytes, ``caller`` in whose turns the call is served. A large
    body is estimated here, as its estimate is asked for more than once and takes long.
    """
    client, endpoint = DIALECTS[head.dialect].client, head.endpoint
    check_body(CHECKED_FIELDS[head.dialect][endpoint], body, SPELLINGS)
    if not client.ruled.isdisjoint(body):
        for rule in client.rules.get(endpoint, ()):
            rule(body)
    if not GROUPS.isdisjoint(body):
        check_groups(body)
    if client.user is not None and head.user is None:
        head = replace(head, user=client.user(body))
    asked: Any = body["model"]
    deployment = None
    if client.named is not None:
        asked, deployment = client.named(asked)
    models = tuple(asked) if type(asked) is list else (asked,)
    hub_body = client.to_hub(endpoint, body)
    _check_names("model", *models)
    if head.user is not None or "user" in hub_body:
        _check_names("user", hub_body.get("user"), head.user)
    if head.deployment is not None or deployment is not None:
        _check_names("deployment", head.deployment, deployment)
    return Call(
        head=head,
        body=hub_body,
        models=models,
        deployment=deployment,
        stream="stream" in body and body["stream"] is True and endpoint not in UNSTREAMED,
        wants_usage=client.always_usage or ("stream_options" in body and _includes_usage(body)),
        timeout_s=_timeout_s(head, hub_body) if "inference_timeout" in hub_body else head.timeout_s,
        warnings=() if hub_body is body else _left_out(client, body, hub_body),
        size=size,
        quarters=field_quarters(hub_body) if size > LARGE_BYTES else {},
        names=ALIKE.intersection(body),
        caller=caller,
    )


def _includes_usage(body: Json) -> bool:
    options = body["stream_options"]
    return options is not None and options.get("include_usage") is True


def _timeout_s(head: RequestHead, body: Json) -> float | None:
    """Return the shorter of the times that a head and a body allow; 0 is none."""
    one, other = head.timeout_s, body["inference_timeout"]
    return min(one, other) if one and other else one or other or None


def _check_names(param: str, *names: Any) -> None:
    """Raise ``BadField`` for a name that is longer than any is: counters and the calls that can be
    explained keep names."""
    for name in names:
        if name is not None and not (type(name) is str and len(name) <= MAX_NAME):
            raise BadField(param, f"must be a string of at most {MAX_NAME} characters")


def _left_out(client: Client, body: Json, hub_body: Json) -> tuple[str, ...]:
    """Return a warning for each field of a body that the call does not take over as a whole."""
    dropped = [
        f"{alias} dropped"
        for alias, name in client.aliases.items()
        if body.get(alias) is not None
        and alias not in hub_body
        and body[alias] != hub_body.get(name)
    ]
    return (
        *dropped,
        *(f"{name} filtered" for name in client.filtered if body.get(name) != hub_body.get(name)),
    )
