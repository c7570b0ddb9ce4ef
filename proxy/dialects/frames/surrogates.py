"""Joins surrogate pairs that an upstream has split over two deltas.

A server that cuts text into UTF-16 units escapes each half of a character in a separate event.
Strict JSON parsers reject a single half.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from proxy.errors import UpstreamInvalid
from proxy.types.events import Delta, End, Event, Finish, Frame, Json, Part, Stop, replaced

_SURROGATE = re.compile("[\ud800-\udfff]")
_HIGH_AT_END = re.compile("[\ud800-\udbff]\\Z")


class SurrogateJoiner:
    """Moves the first half of a pair to the next delta of its part. Keeps one half per part."""

    __slots__ = ("_halves",)

    def __init__(self) -> None:
        self._halves: dict[Part, str] = {}

    def feed(self, frame: Frame) -> Frame:
        """Return a frame whose texts have complete pairs.

        Raises `UpstreamInvalid` for a half that never gets its counterpart, or is in another
        string.
        """
        events, doc = list(frame.events), frame.doc
        is_changed = False
        for position, event in enumerate(events):
            if self._halves and self._ends_half(event):
                raise _invalid()
            if type(event) is not Delta:
                continue
            text = self._joined(event)
            if text != event.text:
                is_changed = True
                events[position] = Delta(event.part, text, event.slot)
                doc = replaced(doc, event.slot, text) if doc is not None and event.slot else doc
        try:
            orjson.dumps((doc, events), default=_plain)
        except TypeError:
            raise _invalid() from None
        if not is_changed and b"\n" not in (frame.raw or b""):
            return frame
        return frame._replace(events=tuple(events), doc=doc, raw=None)

    def _ends_half(self, event: Event) -> bool:
        """Return True if an event ends the text of a half."""
        if isinstance(event, End):
            return event.part in self._halves
        if isinstance(event, Finish):
            return any(part.choice == event.choice for part in self._halves)
        return isinstance(event, Stop)

    def _joined(self, event: Delta) -> str:
        text = self._halves.pop(event.part, "") + event.text
        if _SURROGATE.search(text) is None:
            return text
        if _HIGH_AT_END.search(text) is not None:
            self._halves[event.part], text = text[-1], text[:-1]
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise _invalid() from None


def without_halves(doc: Json) -> Json:
    """Return a document with a question mark in place of each half."""
    plain = json.dumps(doc, ensure_ascii=False).encode("utf-8", "replace")
    document: Json = orjson.loads(plain)
    return document


def _plain(value: Any) -> Any:
    """Return what orjson writes for an event, or for its part or tool call."""
    return value.id if isinstance(value, Part) else [*value]


def _invalid() -> UpstreamInvalid:
    return UpstreamInvalid("The upstream sent invalid JSON.")
