"""The wire formats that clients and upstreams speak: one file each, and one line in ``DIALECTS``.

Nothing in this room reads or writes a socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proxy.dialects import enkrypt, fireworks, greet, multimodel, openai, portkey, scale
from proxy.dialects.base import Dialect, Headers
from proxy.dialects.fields import check_body
from proxy.errors import MethodNotAllowed, NotFound
from proxy.types import EPOCH, Call, Door, Endpoint, Json

DIALECTS: dict[str, Dialect] = {
    "openai": openai.OPENAI,
    "portkey": portkey.PORTKEY,
    "fireworks": fireworks.FIREWORKS,
    "scale": scale.SCALE,
    "multimodel": multimodel.MULTIMODEL,
    "enkrypt": enkrypt.ENKRYPT,
}

ROUTES: dict[tuple[str, str], tuple[str, Endpoint]] = {
    route: (name, endpoint)
    for name, dialect in DIALECTS.items()
    if name != "portkey"  # it shares OpenAI's routes and is told apart by its headers
    for route, endpoint in dialect.client.routes.items()
}


PATHS: dict[str, str] = {path: name for (_, path), (name, _) in ROUTES.items()}


def speak(path: str, headers: Headers) -> Dialect:
    """Tell the dialect of a request by its path and headers; OpenAI's for a path that is none."""
    name = PATHS.get(path, "openai")
    if name == "openai" and any(header.startswith(portkey.PREFIX) for header in headers):
        return portkey.PORTKEY
    return DIALECTS[name]


@dataclass(frozen=True, slots=True)
class Came:
    """What we note of a request ourselves: see ``Door``."""

    request_id: str
    nonce: str = ""
    at: datetime = EPOCH


def greeted(method: str, path: str, headers: Headers, came: Came) -> Door:
    """Read what the head of a request says. Raises a ``Refused`` for what cannot be served."""
    found = ROUTES.get((method, path))
    if found is None:
        allowed = sorted(verb for verb, known in ROUTES if known == path)
        if allowed:
            raise MethodNotAllowed(", ".join(allowed))
        raise NotFound("There is no such path.")
    dialect = speak(path, headers)
    door = Door(
        dialect=dialect.name,
        endpoint=found[1],
        route=path,
        request_id=came.request_id,
        nonce=came.nonce,
        headers=headers,
        at=came.at,
        credential=dialect.client.credential(headers),
    )
    return dialect.client.greet(headers, greet.common(headers, door))


def read_call(door: Door, body: Json) -> Call:
    """Check each field of a body and put it into OpenAI's form. Raises ``BadField``."""
    dialect = DIALECTS[door.dialect]
    check_body(dialect.fields[door.endpoint], body)
    for rule in dialect.client.rules.get(door.endpoint, ()):
        rule(body)
    asked: Any = body["model"]
    deployment = None
    if dialect.client.named is not None:
        asked, deployment = dialect.client.named(asked)
    options = body.get("stream_options") or {}
    stream = body.get("stream") is True and door.endpoint != "embeddings"
    hub_body = dialect.client.to_hub(door.endpoint, body)
    return Call(
        door=door,
        body=hub_body,
        models=tuple(asked) if isinstance(asked, list) else (asked,),
        deployment=deployment,
        stream=stream,
        wants_usage=dialect.client.always_usage or options.get("include_usage") is True,
        timeout_s=_shortest(door.timeout_s, hub_body.get("inference_timeout")),
    )


def _shortest(*seconds: float | None) -> float | None:
    given = [s for s in seconds if s]
    return min(given) if given else None
