"""The wire formats that clients and upstreams speak: one file each, and one line in ``DIALECTS``.

Nothing in this room reads or writes a socket.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from proxy.dialects import enkrypt, fireworks, multimodel, openai, portkey, request_headers, scale
from proxy.dialects.base import Client, Dialect, Headers
from proxy.dialects.bounds import SPELLINGS, check_groups, checked_fields
from proxy.dialects.fields import Fields, check_body
from proxy.dialects.request_headers import joined_names
from proxy.dialects.translation import ALIKE
from proxy.errors import BadField, MethodNotAllowed, NotFound
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
    """Return the dialects that have the very same routes, by what their headers begin with."""
    return {
        prefix: other
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

_CREDENTIAL = re.compile("|".join(CREDENTIAL_WORDS))
USUAL_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host"}
    | {"traceparent", "user-agent", "x-forwarded-for", "x-request-id"}
)
"""Headers that most requests have: none of these names is a credential's."""


def dialect_of(path: str, headers: Headers) -> Dialect:
    """Return the dialect of a request by its path and headers; OpenAI's for an unknown path."""
    name = PATHS.get(path, "openai")
    if sharing := SHARING[name]:
        names = joined_names(headers)
        for prefix, other in sharing.items():
            if f"\n{prefix}" in names:
                return other
    return DIALECTS[name]


@frozen
class Received:
    """What we note of a request ourselves: see ``RequestHead``."""

    request_id: str
    nonce: str = ""
    at: datetime = EPOCH


def parse_head(method: str, path: str, headers: Headers, received: Received) -> RequestHead:
    """Read what the head of a request says. Raises a ``Refused`` for what cannot be served."""
    found = ROUTES.get((method, path))
    if found is None:
        allowed = sorted(verb for verb, known in ROUTES if known == path)
        if allowed:
            raise MethodNotAllowed(", ".join(allowed))
        raise NotFound("There is no such path.")
    dialect = dialect_of(path, headers)
    credential = dialect.client.credential(headers)
    head = RequestHead(
        dialect=dialect.name,
        endpoint=found[1],
        route=path,
        request_id=received.request_id,
        nonce=received.nonce,
        headers=_without_credentials(headers, credential),
        at=received.at,
        digest=None if credential is None else credential.digest,
    )
    return dialect.client.read_headers(headers, request_headers.common(headers, head))


def _without_credentials(headers: Headers, credential: Secret | None) -> Headers:
    """Return the headers that carry no credential, the caller's own under no name."""
    own = credential.reveal() if credential is not None else None
    return {
        name: value
        for name, value in headers.items()
        if (own is None or own not in value)
        and (name in USUAL_HEADERS or _CREDENTIAL.search(name) is None)
    }


def read_call(head: RequestHead, body: Json, size: int = 0, caller: str = "") -> Call:
    """Check each field of a body and put it into OpenAI's form. Raises ``BadField``.

    ``size`` is that of the body in bytes, ``caller`` in whose turns the call is served. A large
    body is estimated here, as its estimate is asked for more than once and takes long.
    """
    dialect = DIALECTS[head.dialect]
    check_body(CHECKED_FIELDS[head.dialect][head.endpoint], body, SPELLINGS)
    check_groups(body)
    for rule in dialect.client.rules.get(head.endpoint, ()):
        rule(body)
    asked: Any = body["model"]
    deployment = None
    if dialect.client.named is not None:
        asked, deployment = dialect.client.named(asked)
    options = body.get("stream_options") or {}
    stream = body.get("stream") is True and head.endpoint != "embeddings"
    hub_body = dialect.client.to_hub(head.endpoint, body)
    _check_names(head, asked if isinstance(asked, list) else [asked], deployment, hub_body)
    return Call(
        head=head,
        body=hub_body,
        models=tuple(asked) if isinstance(asked, list) else (asked,),
        deployment=deployment,
        stream=stream,
        wants_usage=dialect.client.always_usage or options.get("include_usage") is True,
        timeout_s=_shorter(head.timeout_s, hub_body.get("inference_timeout")),
        warnings=_left_out(dialect.client, body, hub_body),
        size=size,
        quarters=field_quarters(hub_body) if size > LARGE_BYTES else {},
        names=ALIKE.intersection(body),
        caller=caller,
    )


def _check_names(head: RequestHead, models: list[Any], deployment: str | None, body: Json) -> None:
    """Raise ``BadField`` for a name that is longer than any is: counters and the calls that can be
    explained keep names."""
    names = [("model", model) for model in models]
    names += [("user", body.get("user")), ("user", head.user)]
    for param, name in (*names, ("deployment", head.deployment), ("deployment", deployment)):
        if name is not None and not (isinstance(name, str) and len(name) <= MAX_NAME):
            raise BadField(param, f"must be a string of at most {MAX_NAME} characters")


def _left_out(client: Client, body: Json, hub_body: Json) -> tuple[str, ...]:
    """Return a warning for each field of a body that the call does not take over as a whole."""
    if hub_body is body:
        return ()
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


def _shorter(one: float | None, other: float | None) -> float | None:
    if one and other:
        return min(one, other)
    return one or other or None
