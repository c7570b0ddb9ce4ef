"""Whether a place of a text lies within an address: of a link, a picture, or in a tag of HTML.

A text is read from its beginning on, in any pieces. What a reader or a renderer may take for an
address counts as one; so what is put there does not leave for a host that nobody has named.
"""

from __future__ import annotations

import re
from typing import Literal

State = Literal["text", "target", "address", "angle", "tag"]

LOOKBACK = 48  # characters before, within which an address may have begun
HOST_WITHIN = 300  # characters of an address that its host is looked for in

_BEGIN = re.compile(
    r"\](?P<target>\(|:)"  # of a link or a picture in Markdown, or of its definition
    r"|<[A-Za-z][A-Za-z0-9-]{0,30}(?P<tag>[\s/])"
    r"|(?:https?:|[A-Za-z][A-Za-z0-9+.-]{0,30}:[/\\]|[/\\]{2}|www\.)",
    re.IGNORECASE,
)
_SPACE = re.compile(r"[^\x00-\x20]")
_ENDS: dict[str, re.Pattern[str]] = {
    "address": re.compile(r"[\x00-\x20]"),
    "angle": re.compile(r"[>\n]"),
    "tag": re.compile(r"[>\"']"),
}
_QUOTES = {quote: re.compile(quote) for quote in ("'", '"')}
_HOST = re.compile(r"https?://([A-Za-z0-9.-]{1,253})(?::[0-9]{1,5})?[/?#]", re.IGNORECASE)


class Addresses:
    """Feed it a text; it says whether what comes next would be within an address, and where that
    leads."""

    __slots__ = ("_address", "_before", "_quote", "_state")

    def __init__(self) -> None:
        self._state: State = "text"
        self._before = ""
        self._address = ""
        self._quote = ""

    @property
    def within(self) -> bool:
        return self._state != "text"

    @property
    def host(self) -> str | None:
        """The host of the address, where it is certain; else None."""
        found = _HOST.match(self._address) if self._state == "address" else None
        return found[1].lower().rstrip(".") if found else None

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            at = self._step(text, at)

    def _step(self, text: str, at: int) -> int:
        if self._state == "text":
            return self._text(text, at)
        if self._state == "target":
            return self._target(text, at)
        ends = _QUOTES[self._quote] if self._quote else _ENDS[self._state]
        end = ends.search(text, at)
        upto = end.start() if end else len(text)
        if self._state == "address":
            self._address += text[at:upto][: HOST_WITHIN - len(self._address)]
        if end is None:
            return upto
        if self._state == "tag" and (self._quote or end[0] != ">"):
            self._quote = "" if self._quote else end[0]
        else:
            self._begin("text")
        return end.end()

    def _text(self, text: str, at: int) -> int:
        """Look for the beginning of an address."""
        part = self._before + text[at:]
        shift = at - len(self._before)
        begin = _BEGIN.search(part)
        if begin is None:
            self._before = part[-LOOKBACK:]
            return len(text)
        if begin["target"]:
            self._begin("target")
        elif begin["tag"]:
            self._begin("tag")
        else:
            before = part[begin.start() - 1 : begin.start()]
            self._begin("address", begin[0], before if before in ('"', "'") else "")
        return max(at, shift + begin.end())

    def _target(self, text: str, at: int) -> int:
        """Pass the space before the target of a link."""
        said = _SPACE.search(text, at)
        if said is None:
            return len(text)
        angle = said[0] == "<"
        self._begin("angle" if angle else "address")
        return said.start() + angle

    def _begin(self, state: State, address: str = "", quote: str = "") -> None:
        self._state, self._address, self._quote = state, address, quote
        self._before = ""
