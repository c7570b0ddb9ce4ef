"""First values of the places of a stream whose texts are inspected document by document.

A name or a member beside the choices is no text that later documents carry on, but a client may
join the values of several documents. So only the first value of a place passes, and the same one
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from proxy.errors import GuardBlocked
from proxy.guards.findings.tally import RuleTally
from proxy.guards.stream.window import Window
from proxy.guards.text.walk import Text

MOST_PLACES = 1024

_DIGEST_BYTES = 16  # so that neither long names nor long values are kept


class FirstValues:
    """The first values of the places of one stream, at most ``MOST_PLACES``."""

    __slots__ = ("_repeats", "_values")

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._repeats: dict[bytes, bool] = {}

    def is_unsure(self, place: tuple[object, ...]) -> bool:
        """Return True if the next text of a place may have to be inspected as repeated."""
        at = _digest(repr(place)) if self._values else b""
        return at in self._values and at not in self._repeats

    def passes(
        self, place: tuple[object, ...], text: Text, says_more: Callable[[Text], bool]
    ) -> bool:
        """Return True if a text is the first of its place, or equal to it. An equal one does not
        pass if `says_more`: ``42`` is the number of a card if it is repeated."""
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
    """Return the rules that may hold back their findings in a text."""
    return [
        each
        for each in tallies
        if each.error is None and each.rule.enforces and each.rule.applies(text.role, text.kind)
    ]


def says_more(text: str, tallies: Sequence[RuleTally]) -> bool:
    """Return True if rules with a lookback have a finding in a repeated text."""
    anew = [
        RuleTally(each.rule, each.clock) for each in tallies if each.detector.lookback is not None
    ]
    if not anew:
        return False
    window = Window(anew)
    try:
        pieces = [*window.feed(text * (2 + window.lookback // len(text))), *window.flush()]
    except GuardBlocked:
        return True
    return any(piece.changed for piece in pieces) or any(each.findings for each in anew)


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
