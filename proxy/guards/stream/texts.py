"""Texts of a stream: their filters, and texts that a client may join.

If a rule may withhold findings, a place without a text filter passes only values that equal its
first one. No text passes after its choice has finished, or in a second form of a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from proxy.errors import GuardBlocked
from proxy.guards.findings import Replace, RuleTally, replace_by_kind
from proxy.guards.stream.arguments import ArgumentsWindow
from proxy.guards.stream.frame_texts import (
    CHAT,
    FrameText,
    Place,
    get_choice,
    is_in_event_value,
    number_path,
)
from proxy.guards.stream.text_filter import TextFilter, TextFilters
from proxy.guards.stream.window import Window
from proxy.guards.text.members import is_in_choice
from proxy.guards.text.walk import MemberName, Path, Text
from proxy.runtime.frozen import frozen
from proxy.types.events import Frame, Part

MAX_PLACES = 1024  # places of a stream whose first value is remembered
_DIGEST_BYTES = 16  # digests bound the memory for long names and values
_FORMS = frozenset({"delta", "message", "text"})
_FORM_OF = {"chat": "delta", "completions": "text"}


@frozen
class RuleFilters:
    """Makes windows of rules."""

    tallies: Sequence[RuleTally]
    replace: Replace = replace_by_kind
    to_last: bool = False

    def has_filter(self, text: Text) -> bool:
        for tally in self.tallies:  # noqa: SIM110  # runs for each chunk, and a generator is slower
            if tally.rule.applies_to(text.role, text.kind):
                return True
        return False

    def make_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        tallies = list_inspecting_rules(self.tallies, text)
        if crowded:
            for tally in tallies:
                tally.record_failure("too_many_texts")
        if arguments:
            return ArgumentsWindow.for_rules(tallies, self.replace)
        return Window(tallies, replace=self.replace)


def list_inspecting_rules(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    """Return the rules that inspect a text."""
    return [tally for tally in tallies if tally.rule.applies_to(text.role, text.kind)]


def list_enforcing_rules(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    """Return the rules that may withhold findings in a text."""
    return [
        tally
        for tally in list_inspecting_rules(tallies, text)
        if tally.error is None and tally.rule.enforces
    ]


def has_repeated_finding(text: str, tallies: Sequence[RuleTally]) -> bool:
    """Return True if rules with a lookback find something in consecutive copies of a text.

    A stream may send the same value in one place again and again: ``42`` repeated can make a card
    number.
    """
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


class JoinableTexts:
    """Places and forms of the texts of one stream so far. ``ended`` are the finished choices."""

    __slots__ = (
        *("_content_places", "_first_values", "_forms", "_repeated", "_tallies", "_to_last"),
        "ended",
    )

    def __init__(self, filters: TextFilters) -> None:
        self._tallies = filters.tallies
        self._to_last = filters.to_last
        self._first_values: dict[bytes, bytes] = {}  # by place, both as digests
        self._repeated: set[bytes] = set()  # places whose value was inspected as repeated
        self._forms: dict[int, str] = {}
        self._content_places: dict[int, Place | None] = {}  # by choice, None for parts
        self.ended: set[int] = set()

    def is_complete(self, text: Text) -> bool:
        """Return True if a text ends with its choice, although more may follow."""
        return not self._to_last or bool(list_enforcing_rules(self._tallies, text))

    def may_repeat(self, frame: Frame, text: Text) -> bool:
        """Return True if copies of a complete text may have to be inspected together."""
        place = _get_repeated_place(frame, text.path) if self._first_values else None
        key = _digest(repr(place)) if place is not None else b""
        return key in self._first_values and key not in self._repeated

    def must_remove(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text must be removed.

        If no rule may withhold findings, record that it was inspected without others.
        """
        acting_rules = list_enforcing_rules(self._tallies, text)
        if text.kind == "logprobs" and acting_rules:
            return True
        place, rules = (
            _get_repeated_place(frame, text.path),
            acting_rules or list_inspecting_rules(self._tallies, text),
        )
        if place is None or self._is_safe_copy(place, text.text, rules):
            return False
        for tally in () if acting_rules else rules:
            tally.opaque = True
        return bool(acting_rules)

    def _is_safe_copy(
        self, place: tuple[object, ...], text: str, tallies: Sequence[RuleTally]
    ) -> bool:
        """Return True for the first text of a place, and for equal texts without a finding."""
        key, digest = _digest(repr(place)), _digest(text)
        if key not in self._first_values:
            if len(self._first_values) < MAX_PLACES:
                self._first_values[key] = digest
        elif self._first_values[key] == digest and key not in self._repeated:
            self._repeated.add(key)
            if has_repeated_finding(text, tallies):
                self._first_values[key] = b""
        return self._first_values.get(key) == digest

    def must_remove_continued(self, frame: Frame, going: FrameText) -> bool:
        """Return True if a continued text must be removed.

        If no rule may withhold findings and its choice has finished, record that it was inspected
        in two parts.
        """
        place, text, choice = going.place, going.text, get_choice(going.place)
        has_ended = choice in self.ended
        if not list_enforcing_rules(self._tallies, text):
            if has_ended and not self._to_last:
                for tally in list_inspecting_rules(self._tallies, text):
                    tally.record_failure("text_after_finish")
            return False
        if has_ended or frame.family not in CHAT:
            return has_ended
        if _is_content(place, text.path) and text.text:
            content_place = None if isinstance(place, Part) else place
            if self._content_places.setdefault(choice, content_place) != content_place:
                # Clients join all content, but each place has a filter of its own.
                return True
        form = _FORM_OF[frame.family] if isinstance(place, Part) else str(text.path[2])
        usual = form
        if isinstance(place, tuple) and form in _FORMS:
            delta = (frame.doc or {})[str(text.path[0])][text.path[1]].get("delta")
            usual = "delta" if isinstance(delta, dict) else form
        return form in _FORMS and self._forms.setdefault(choice, usual) != form


def _is_content(place: Part | Place, path: Path) -> bool:
    """Return True for a text that clients show as content, typed or not."""
    if isinstance(place, Part):
        return place.kind == "text"
    return path[2:4] == ("delta", "content") and all(
        isinstance(step, int) or step == "text" for step in path[4:]
    )


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


def _get_repeated_place(frame: Frame, path: Path) -> tuple[object, ...] | None:
    """Return the place of a complete text that later documents may also have, or None."""
    doc = frame.doc
    if doc is None or isinstance(path[-1], MemberName):
        return None
    if frame.family in CHAT and is_in_choice(path) and path[-1] == "name":
        return number_path(doc, path)  # clients join the names of all chunks
    if is_in_event_value(frame, path):
        return None
    if frame.family in CHAT:
        return number_path(doc, path) if is_in_choice(path) else path
    kind = doc.get("type")
    return (kind, *path) if isinstance(kind, str) and kind.endswith("delta") else None
