"""Separates the preamble of a streamed answer from its content.

An upstream announces an answer before its model has written anything: `message_start`,
`response.created`, a chunk with a role. A client has received nothing as long as those frames are
held, so another target may still answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.types.events import Begin, Delta, Event, Fault, Finish, Frame, Stop

MAX_FRAMES = 16
"""Frames of a preamble. More are passed on, because the client waits for them."""


def is_preamble(frames: Sequence[Frame]) -> bool:
    """Return True if the frames of a stream so far have no content and more are to be held."""
    if len(frames) > MAX_FRAMES:
        return False
    return not any(map(_has_content, frames))


def _has_content(frame: Frame) -> bool:
    is_unread = frame.doc is None and frame.raw is not None
    return bool(frame.size) or is_unread or any(map(_is_content, frame.events))


def _is_content(event: Event) -> bool:
    if type(event) is Delta:
        return bool(event.text)
    if type(event) is Begin:
        return event.part.kind == "opaque"
    return type(event) in (Finish, Fault, Stop)
