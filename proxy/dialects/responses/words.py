"""References of a Responses request to stored state, and ids of items that are not stored."""

from __future__ import annotations

PREVIOUS = "previous_response_id"
CONVERSATION = "conversation"
UNSTORED = "unstored_"
"""Follows the kind in the ids of items that Headrace makes of a chat: no provider stores those."""

UNKEPT = (
    " Responses whose id does not begin with {} are not stored. Send the whole conversation in "
    "input instead."
)


def where_unkept(text: str, prefix: str) -> str:
    """Return what to add for an id that leads nowhere: where it has not the ``prefix`` of
    responses, no provider keeps what it names."""
    return UNKEPT.format(prefix) if text and not text.startswith(prefix) else ""
