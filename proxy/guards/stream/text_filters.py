"""Filters of the texts of a stream, and texts that a client may join to others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Protocol

from proxy.errors import GuardBlocked
from proxy.guards.findings import Replace, RuleTally, named
from proxy.guards.stream.arguments import ArgumentsWindow
from proxy.guards.stream.frame_texts import (
    CHAT,
    FrameText,
    Place,
    choice_of,
    is_of_event,
    numbered,
)
from proxy.guards.stream.text_filter import TextFilter
from proxy.guards.stream.window import Window
from proxy.guards.text.walk import MemberName, Path, Text, parts_of
from proxy.runtime.frozen import frozen
from proxy.types import Json
from proxy.types.events import Frame, Part
from proxy.types.index import index_of

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


class TextFilters(Protocol):
    """Makes the filter of each text of a stream."""

    def concerns(self, text: Text) -> bool:
        """Return True if a text has a filter."""

    def acts(self, text: Text) -> bool:
        """Return True if findings in a text may be held back."""

    def says_more(self, text: Text) -> bool:
        """Return True if a repeated text has a finding that the text alone has not."""

    def ends(self, text: Text) -> bool:
        """Return True if a text ends with its choice, although more may follow."""

    def miss(self, text: Text) -> None:
        """Record that a text went on after its end, so that it was inspected in two."""

    def leave_unread(self, text: Text) -> None:
        """Record that the texts of several documents at one place were not inspected as one."""

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        """Return a new filter. `crowded`: there are as many filters as are allowed."""


@frozen
class RuleFilters:
    """Windows of rules."""

    tallies: Sequence[RuleTally]
    replace: Replace = named
    to_last: bool = False  # a text goes on after its choice has finished

    def concerns(self, text: Text) -> bool:
        for each in self.tallies:  # noqa: SIM110  # for each chunk, and a generator costs more
            if each.rule.applies(text.role, text.kind):
                return True
        return False

    def acts(self, text: Text) -> bool:
        return bool(acting(self.tallies, text))

    def says_more(self, text: Text) -> bool:
        return says_more(text.text, acting(self.tallies, text) or self._applying(text))

    def ends(self, text: Text) -> bool:
        return not self.to_last or self.acts(text)

    def miss(self, text: Text) -> None:
        for tally in self._applying(text):
            tally.fail("text_after_finish")

    def leave_unread(self, text: Text) -> None:
        for tally in self._applying(text):
            tally.opaque = True

    def _applying(self, text: Text) -> list[RuleTally]:
        return [each for each in self.tallies if each.rule.applies(text.role, text.kind)]

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        tallies = self._applying(text)
        if crowded:
            for tally in tallies:
                tally.fail("too_many_texts")
        if arguments:
            return ArgumentsWindow.under(tallies, self.replace)
        return Window(tallies, replace=self.replace)


MAX_PLACES = 1024
_FORMS = frozenset({"delta", "message", "text"})
_FORM_OF = {"chat": "delta", "completions": "text"}


class Joinable:
    """The places and forms of the texts of one stream so far. `ended` are finished choices."""

    __slots__ = ("_filters", "_firsts", "_forms", "_numbers", "ended")

    def __init__(self, filters: TextFilters) -> None:
        self._filters = filters
        self._firsts = FirstValues()
        self._forms: dict[int, str] = {}
        self._numbers: dict[Place, int] = {}
        self.ended: set[int] = set()

    def is_unsure(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text may have to be read as repeated many times."""
        place = _place(frame, text.path)
        return place is not None and self._firsts.is_unsure(place)

    def omits(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text is to be left out. Without an acting rule, note that it
        was not inspected together with others."""
        acts = self._filters.acts(text)
        if text.kind == "logprobs" and acts:
            return True
        place = _place(frame, text.path)
        if place is None or self._firsts.passes(place, text, self._filters.says_more):
            return False
        if not acts:
            self._filters.leave_unread(text)
        return acts

    def omits_going(self, frame: Frame, going: FrameText) -> bool:
        """Return True if a text that goes on is to be left out. Without an acting rule, note that
        it was inspected in two if its choice has finished."""
        place, choice = going.place, choice_of(going.place)
        has_ended = choice in self.ended
        if not self._filters.acts(going.text):
            if has_ended and self._filters.ends(going.text):
                self._filters.miss(going.text)
            return False
        if frame.family not in CHAT:
            return has_ended
        if isinstance(place, Part):
            form = _FORM_OF[frame.family]
            return self._forms.setdefault(choice, form) != form or has_ended
        path, doc = going.text.path, frame.doc or {}
        return (
            has_ended
            or self._is_other_part(place, doc, path)
            or self._is_other_form(choice, doc, path)
        )

    def _is_other_part(self, place: Place, doc: Json, path: Path) -> bool:
        steps = parts_of(path)
        if steps is None or (len(self._numbers) >= MAX_PLACES and place not in self._numbers):
            return False
        value = doc
        for step in path[: steps + 1]:
            value = value[step]  # type: ignore[index]
        number = 0 if steps == len(path) else index_of(value, 0)
        return self._numbers.setdefault(place, number) != number

    def _is_other_form(self, choice: int, doc: Json, path: Path) -> bool:
        form = str(path[2])
        if form not in _FORMS:
            return False
        usual = "delta" if isinstance(doc["choices"][path[1]].get("delta"), dict) else form
        return self._forms.setdefault(choice, usual) != form


def _place(frame: Frame, path: Path) -> tuple[object, ...] | None:
    """Return the place of a complete text that later documents may have, too."""
    doc = frame.doc
    if doc is None or isinstance(path[-1], MemberName):
        return None
    if frame.family in CHAT and path[0] == "choices" and path[-1] == "name":
        return numbered(doc, path)  # clients join the names of all chunks
    if is_of_event(frame, path):
        return None
    if frame.family in CHAT:
        return numbered(doc, path) if path[0] == "choices" and len(path) > 2 else path
    kind = doc.get("type")
    return (kind, *path) if isinstance(kind, str) and kind.endswith("delta") else None
