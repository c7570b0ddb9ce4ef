"""A call that nobody has made, for asking what would become of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from proxy.dialects import Received, parse_head, read_call
from proxy.types import Call, Json

CHAT, LEGACY = "/v1/chat/completions", "/v1/completions"


def suppose(body: Json, headers: Mapping[str, str], at: datetime, path: str | None = None) -> Call:
    """Return the call that a request would be, without a credential.

    Without a ``path`` a body with a prompt goes to OpenAI's legacy route, any other to chat. Raise
    ``Refused`` for a request that no policy would ever see.
    """
    path = path or (LEGACY if "prompt" in body else CHAT)
    named = {name.lower(): value for name, value in headers.items()}
    return read_call(parse_head("POST", path, named, Received("supposed", "supposed", at)), body)


def example(deployment: str) -> Json:
    """Return the shortest chat that a deployment can be asked for."""
    return {"model": deployment, "messages": [{"role": "user", "content": "Hello"}]}
