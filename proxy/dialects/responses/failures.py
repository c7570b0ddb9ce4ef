"""What a Responses answer says of a failure, in place of an answer or within a stream."""

from __future__ import annotations

from proxy.dialects.responses.tables import member
from proxy.dialects.responses.usage import chat_usage
from proxy.dialects.statuses import STATUS_OF_WORD
from proxy.types import Json

CANCELLED = "cancelled"
FAILED = ("failed", CANCELLED)
"""What a response is that has no answer, and will have none."""
EVENTS = tuple(f"response.{status}" for status in FAILED)


def failure_of(data: Json) -> Json | None:
    """Return what a document says of a failure as an error object, whose meaning follows from its
    code, and the usage beside it; None for one that says nothing of one."""
    kind, response = data.get("type"), data
    if kind == "error":
        error = member(data.get("error")) or data
    elif kind in EVENTS:
        response = member(data.get("response"))
        error = member(response.get("error"))
    elif data.get("status") in FAILED:
        error = member(data.get("error"))
    else:
        return data if kind is None and data.get("error") and "output" not in data else None
    code, named = error.get("code"), error.get("type")
    if code is None and response.get("status") == CANCELLED:
        code = CANCELLED
    if named in (None, "error"):
        theirs = code is None or STATUS_OF_WORD.get(str(code), 400) >= 429
        named = "server_error" if theirs else "invalid_request_error"
    words = {name: error.get(name) for name in ("message", "param")}
    return {"error": {**words, "code": code, "type": named}, "usage": chat_usage(response)}
