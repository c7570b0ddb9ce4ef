"""Reads the body of a passthrough request: JSON is parsed, other bodies are streamed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from proxy.dialects.passthrough.request import (
    check_media_type,
    is_any_json,
    read_passthrough,
    unread_call,
)
from proxy.errors import BadRequest
from proxy.server.request import BodyShare, Incoming
from proxy.types import Call, RequestHead

BODILESS = "GET"


async def read_passed_call(
    head: RequestHead, incoming: Incoming, share: BodyShare, caller: str
) -> Call:
    """Return the call. Raises ``RequestError``.

    Text that looks like JSON must be valid JSON, or guards and rules would miss its fields.
    """
    length = incoming.length()
    if length == 0:
        return read_passthrough(head, {}, caller=caller)
    if head.passthrough is None or head.method == BODILESS:
        raise BadRequest("A GET request must not have a body.")
    if not is_any_json(incoming.media_type):
        media_type = check_media_type(incoming.media_type)
        head = replace(head, passthrough=replace(head.passthrough, media_type=media_type))
        return unread_call(head, incoming.upload(length), caller)
    raw = await incoming.read_body()
    make = partial(read_passthrough, head, size=len(raw), caller=caller)
    if not raw:
        return make({})
    return await incoming.parsing.read(raw, make, caller, share.take_read)
