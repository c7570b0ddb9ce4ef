"""A call that nobody has made, for asking what would become of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from proxy.dialects import BODILESS, Received, parse_head, read_call
from proxy.errors import NotFound
from proxy.types import ABOUT_STATE, Call, Json, RequestHead

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPaths

CHAT, LEGACY = "/v1/chat/completions", "/v1/completions"
SEALED = "What a provider keeps is found by ids that only the running proxy opens."


def suppose(
    body: Json,
    headers: Mapping[str, str],
    at: datetime,
    path: str | None = None,
    *,
    method: str = "POST",
    passed: PassedPaths | None = None,
) -> Call:
    """Return the call that a request would be, without a credential.

    Without a ``path`` a body with a prompt goes to OpenAI's legacy route, any other to chat;
    ``passed`` are the paths that policy has passed on. Raise ``Refused`` for a request that no
    policy would ever see.
    """
    path = path or (LEGACY if "prompt" in body else CHAT)
    named = {name.lower(): value for name, value in headers.items()}
    received = Received("supposed", "supposed", at=at, passed=lambda: passed)
    return read_supposed(parse_head(method, path, named, received), body)


def read_supposed(head: RequestHead, body: Json, caller: str = "") -> Call:
    """Return the call of a head and a body. Raise ``NotFound`` for one about what a provider
    keeps."""
    if head.passed is not None:
        from proxy.dialects.passed import read_passed  # noqa: PLC0415  # few calls are such

        body = {} if head.method == "GET" else body
        return read_passed(head, body, len(body), caller)
    if head.endpoint in ABOUT_STATE:
        raise NotFound(SEALED)
    if head.endpoint in BODILESS:
        return Call(head, {}, caller=caller)
    return read_call(head, body, caller=caller)


def example(deployment: str) -> Json:
    """Return the shortest chat that a deployment can be asked for."""
    return {"model": deployment, "messages": [{"role": "user", "content": "Hello"}]}
