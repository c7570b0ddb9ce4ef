"""What places of a stream said first, for those that are read chunk by chunk.

A name or a field beside the choices is no text that goes on from chunk to chunk, but a client may
put together what several chunks have there, which nobody has read. So only the first value of a
place passes, and the same one again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from proxy.errors import GuardBlocked
from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.stream.window import Window
from proxy.guardrails.text.walk import Path, Text

MOST_PLACES = 1024
MOST_FILLING = 64  # characters of what fills a chunk

_FILLING: Path = ("obfuscation",)
_DIGEST_BYTES = 16  # so that neither long names nor long values are kept


class FirstValues:
    """The first values of the places of one stream, at most ``MOST_PLACES``."""

    __slots__ = ("_repeats", "_values")

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._repeats: dict[bytes, bool] = {}

    def is_unsure(self, place: tuple[object, ...]) -> bool:
        """True if the next text of a place may have to be looked at as said again and again."""
        at = _digest(repr(place)) if self._values else b""
        return at in self._values and at not in self._repeats

    def passes(
        self, place: tuple[object, ...], text: Text, says_more: Callable[[Text], bool]
    ) -> bool:
        """True if a text is the first of its place, or the same again: but where it ``says_more``
        again and again than once, as ``42`` is the number of a card."""
        at, digest = _digest(repr(place)), _digest(text.text)
        first = self._values.get(at)
        if first is None:
            if len(self._values) >= MOST_PLACES:
                return False
            self._values[at] = digest
            return True
        if first != digest:
            return False
        if at not in self._repeats:
            self._repeats[at] = not says_more(text)
        return self._repeats[at]


def acting(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    """Return the rules at work that may keep back what they find in a text."""
    return [
        each
        for each in tallies
        if each.error is None and each.rule.enforces and each.rule.applies(text.role, text.kind)
    ]


def says_more(text: str, tallies: Sequence[RuleTally]) -> bool:
    """True if rules that look for places find one in a text that is said again and again."""
    anew = [RuleTally(each.rule, each.clock) for each in tallies if each.detector.reach is not None]
    if not anew:
        return False
    window = Window(anew)
    try:
        pieces = [*window.feed(text * (2 + window.reach // len(text))), *window.flush()]
    except GuardBlocked:
        return True
    return any(piece.changed for piece in pieces) or any(each.findings for each in anew)


def is_filling(text: Text) -> bool:
    """True for what OpenAI has in each chunk so that nobody can tell its size."""
    return text.path == _FILLING and len(text.text) <= MOST_FILLING and text.text.isalnum()


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
