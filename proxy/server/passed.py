"""The body of a call that is passed on: read where it is JSON, else left where it is until an
upstream takes it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from proxy.dialects.passthrough.request import (
    media_type_of,
    names_json,
    read_passthrough,
    unread_call,
)
from proxy.errors import BadRequest
from proxy.server.bodies import BodyShare
from proxy.server.request import Incoming
from proxy.types import Call, RequestHead

BODILESS = "GET"


async def read_passed_call(
    head: RequestHead, incoming: Incoming, share: BodyShare, caller: str
) -> Call:
    """Return the call. Raise ``Refused`` for JSON that cannot be read, and for a body that can not
    be passed on. JSON that cannot be read does not pass, whatever its head calls it: its ``model``
    and its fields would be the client's own."""
    length = incoming.length()
    if length == 0:
        return read_passthrough(head, {}, caller=caller)
    if head.passthrough is None or head.method == BODILESS:
        raise BadRequest("A GET request must not have a body.")
    if not names_json(incoming.media_type):
        media_type = media_type_of(incoming.media_type)
        head = replace(head, passthrough=replace(head.passthrough, media_type=media_type))
        return unread_call(head, incoming.upload(length), caller)
    raw = await incoming.read_body()
    make = partial(read_passthrough, head, size=len(raw), caller=caller)
    if not raw:
        return make({})
    return await incoming.parsing.read(raw, make, caller, share.take_read)
