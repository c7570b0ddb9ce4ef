"""What the rules of a policy change in a request's parameters, in OpenAI's form.

A parameter that the endpoint does not have is left out. The bound on the answer's tokens has two
names: it is changed under the one that the request uses, and added under the one the rule uses.
"""

from __future__ import annotations

from typing import Any

from proxy.dialects.openai import OPENAI
from proxy.types import Changes, Endpoint, Json

BOUNDS = ("max_tokens", "max_completion_tokens")
ADDED = BOUNDS  # what a cap adds to a request that does not say it: no bound would exceed any


def changed(endpoint: Endpoint, body: Json, changes: Changes) -> Json:
    """Give the body as the rules want it; the very same one where they change nothing."""
    if not changes:
        return body
    body = dict(body)
    for name, value in changes.set.items():
        _put(endpoint, body, name, value)
    for name, most in changes.cap.items():
        _cap(endpoint, body, name, most)
    return body


def _put(endpoint: Endpoint, body: Json, name: str, value: Any) -> None:
    known = _known(endpoint, name)
    if known is None:
        return
    if name in BOUNDS:
        for other in BOUNDS:
            body.pop(other, None)
    body[known] = value


def _cap(endpoint: Endpoint, body: Json, name: str, most: float) -> None:
    names = BOUNDS if name in BOUNDS else (name,)
    said = [each for each in names if body.get(each) is not None]
    for each in said:
        body[each] = min(body[each], most)
    known = _known(endpoint, name)
    if not said and name in ADDED and known is not None:
        body[known] = most


def _known(endpoint: Endpoint, name: str) -> str | None:
    """Give the name of a parameter at an endpoint; None where there is no such thing."""
    if name in BOUNDS and endpoint == "completions":
        return "max_tokens"
    return name if name in OPENAI.fields[endpoint] else None
