"""Filters of the texts of a stream, and rejection of texts that a client may join to others.

While a rule acts, only the first value of a place without a text filter passes, and equal values
after it. No text passes after its choice has finished, in a second form of a choice, or in a part
of a message with another number than the first.
"""

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
from proxy.types.events import Frame, Part
from proxy.types.index import index_of

MAX_PLACES = 1024
_DIGEST_BYTES = 16  # so that neither long names nor long values are kept
_FORMS = frozenset({"delta", "message", "text"})
_FORM_OF = {"chat": "delta", "completions": "text"}


class TextFilters(Protocol):
    """Makes the filters of the texts of a stream. ``tallies`` are the rules that may hold back
    their findings. ``to_last``: texts go on after their choice has finished."""

    @property
    def tallies(self) -> Sequence[RuleTally]: ...

    @property
    def to_last(self) -> bool: ...

    def concerns(self, text: Text) -> bool:
        """Return True if a text has a filter."""

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        """Return a new filter. ``crowded``: there are as many filters as are allowed."""


@frozen
class RuleFilters:
    """Makes windows of rules."""

    tallies: Sequence[RuleTally]
    replace: Replace = named
    to_last: bool = False

    def concerns(self, text: Text) -> bool:
        for tally in self.tallies:  # noqa: SIM110  # for each chunk, and a generator costs more
            if tally.rule.applies(text.role, text.kind):
                return True
        return False

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        tallies = applying(self.tallies, text)
        if crowded:
            for tally in tallies:
                tally.fail("too_many_texts")
        if arguments:
            return ArgumentsWindow.under(tallies, self.replace)
        return Window(tallies, replace=self.replace)


def applying(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    """Return the rules that inspect a text."""
    return [tally for tally in tallies if tally.rule.applies(text.role, text.kind)]


def acting(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    """Return the rules that may hold back their findings in a text."""
    return [
        tally for tally in applying(tallies, text) if tally.error is None and tally.rule.enforces
    ]


def has_repeated_finding(text: str, tallies: Sequence[RuleTally]) -> bool:
    """Return True if rules with a lookback have a finding in a repeated text: ``42`` is the number
    of a card if it is repeated."""
    copies = [
        RuleTally(tally.rule, tally.clock)
        for tally in tallies
        if tally.detector.lookback is not None
    ]
    if not copies:
        return False
    window = Window(copies)
    try:
        pieces = [*window.feed(text * (2 + window.lookback // len(text))), *window.close()]
    except GuardBlocked:
        return True
    return any(piece.changed for piece in pieces) or any(tally.findings for tally in copies)


class FirstValues:
    """Digests of the first values at the places of one stream, of at most ``MAX_PLACES``."""

    __slots__ = ("_repeats", "_values")

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._repeats: dict[bytes, bool] = {}

    def may_repeat(self, place: tuple[object, ...]) -> bool:
        """Return True if the next text of a place may have to be inspected as repeated."""
        key = _digest(repr(place)) if self._values else b""
        return key in self._values and key not in self._repeats

    def passes(
        self, place: tuple[object, ...], text: str, has_repeated_finding: Callable[[], bool]
    ) -> bool:
        """Return True if a text is the first one of its place, or equal to it and without a finding
        if it is repeated."""
        key, digest = _digest(repr(place)), _digest(text)
        first_digest = self._values.get(key)
        if first_digest is None:
            if len(self._values) >= MAX_PLACES:
                return False
            self._values[key] = digest
            return True
        if first_digest != digest:
            return False
        if key not in self._repeats:
            self._repeats[key] = not has_repeated_finding()
        return self._repeats[key]


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


class JoinableTexts:
    """Places and forms of the texts of one stream so far. ``ended`` are the finished choices."""

    __slots__ = ("_first_values", "_forms", "_part_numbers", "_tallies", "_to_last", "ended")

    def __init__(self, filters: TextFilters) -> None:
        self._tallies = filters.tallies
        self._to_last = filters.to_last
        self._first_values = FirstValues()
        self._forms: dict[int, str] = {}
        self._part_numbers: dict[Place, int] = {}
        self.ended: set[int] = set()

    def ends(self, text: Text) -> bool:
        """Return True if a text ends with its choice, although more may follow."""
        return not self._to_last or bool(acting(self._tallies, text))

    def may_repeat(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text may have to be inspected as repeated many times."""
        place = _place(frame, text.path)
        return place is not None and self._first_values.may_repeat(place)

    def omits(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text must be removed. Without an acting rule, record that it
        was not inspected together with others."""
        acting_rules = acting(self._tallies, text)
        if text.kind == "logprobs" and acting_rules:
            return True
        place = _place(frame, text.path)

        def has_finding() -> bool:
            return has_repeated_finding(text.text, acting_rules or applying(self._tallies, text))

        if place is None or self._first_values.passes(place, text.text, has_finding):
            return False
        if not acting_rules:
            for tally in applying(self._tallies, text):
                tally.opaque = True
        return bool(acting_rules)

    def omits_going(self, frame: Frame, going: FrameText) -> bool:
        """Return True if a continued text must be removed. Without an acting rule, record that
        it was inspected in two if its choice has finished."""
        place, text, choice = going.place, going.text, choice_of(going.place)
        has_ended = choice in self.ended
        if not acting(self._tallies, text):
            if has_ended and not self._to_last:
                for tally in applying(self._tallies, text):
                    tally.fail("text_after_finish")
            return False
        if has_ended or frame.family not in CHAT:
            return has_ended
        if isinstance(place, Part):
            form = _FORM_OF[frame.family]
            return self._forms.setdefault(choice, form) != form
        return self._is_other_part(place, frame, text.path) or self._is_other_form(
            choice, frame, text.path
        )

    def _is_other_part(self, place: Place, frame: Frame, path: Path) -> bool:
        steps, value = parts_of(path), frame.doc or {}
        is_full = len(self._part_numbers) >= MAX_PLACES and place not in self._part_numbers
        if steps is None or is_full:
            return False
        for step in path[: steps + 1]:
            value = value[step]  # type: ignore[index]
        number = 0 if steps == len(path) else index_of(value, 0)
        return self._part_numbers.setdefault(place, number) != number

    def _is_other_form(self, choice: int, frame: Frame, path: Path) -> bool:
        form = str(path[2])
        if form not in _FORMS:
            return False
        delta = (frame.doc or {})["choices"][path[1]].get("delta")
        usual = "delta" if isinstance(delta, dict) else form
        return self._forms.setdefault(choice, usual) != form


def _place(frame: Frame, path: Path) -> tuple[object, ...] | None:
    """Return the place of a complete text that later documents may also have, or None."""
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
