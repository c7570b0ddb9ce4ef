"""Filters of the texts of a stream, and checks of texts that a client may join.

These checks apply if a rule may withhold findings:

- A complete text, such as a name, passes if it equals the first text with its key.
- No text passes after its choice has finished.
- No content passes in a second form of its choice, such as parts after a string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from proxy.errors import GuardBlocked
from proxy.guards.findings import RuleTally
from proxy.guards.stream.arguments import ArgumentsFilter
from proxy.guards.stream.frame_texts import (
    CHAT_FAMILIES,
    TextKey,
    UnfinishedText,
    build_text_key,
    get_choice_index,
    is_in_event_value,
)
from proxy.guards.stream.text_filter import TextFilter, TextFilterFactory
from proxy.guards.stream.window import Window
from proxy.guards.text.members import is_in_choice
from proxy.guards.text.walk import MemberName, Path, Text
from proxy.runtime.frozen import frozen
from proxy.types.events import Frame, Part

MAX_TEXT_KEYS = 1024  # texts of a stream whose first value is remembered
_DIGEST_BYTES = 16  # digests bound the memory for long names and values
_FORMS = frozenset({"delta", "message", "text"})
_FORM_OF = {"chat": "delta", "completions": "text"}


@frozen
class RuleFilterFactory:
    """Makes the filter of a text: a window, or a filter of arguments, that applies rules."""

    tallies: Sequence[RuleTally]
    texts_continue_after_finish: bool = False

    def must_filter(self, text: Text) -> bool:
        for tally in self.tallies:  # noqa: SIM110  # runs for each chunk, and a generator is slower
            if tally.rule.applies_to(text.role, text.kind):
                return True
        return False

    def make_filter(self, text: Text, *, is_arguments: bool, is_over_limit: bool) -> TextFilter:
        tallies = list_inspecting_rules(self.tallies, text)
        if is_over_limit:
            for tally in tallies:
                tally.record_failure("too_many_texts")
        if is_arguments:
            return ArgumentsFilter.for_rules(tallies)
        return Window(tallies)


def list_inspecting_rules(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    return [tally for tally in tallies if tally.rule.applies_to(text.role, text.kind)]


def list_enforcing_rules(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    """Return the rules that may withhold findings in a text."""
    return [
        tally
        for tally in list_inspecting_rules(tallies, text)
        if tally.error is None and tally.rule.enforces
    ]


def has_finding_when_repeated(text: str, tallies: Sequence[RuleTally]) -> bool:
    """Return True if rules with a lookback find something in consecutive copies of a text.

    A stream may repeat the same member again and again: ``42`` repeated can make a card number.
    """
    bounded = [tally for tally in tallies if tally.detector.lookback is not None]
    if not bounded:
        return False
    window = Window(copies := [RuleTally(tally.rule, tally.clock) for tally in bounded])
    try:
        pieces = [*window.feed(text * (2 + window.lookback // len(text))), *window.close()]
    except GuardBlocked:
        return True
    return any(piece.is_changed for piece in pieces) or any(tally.findings for tally in copies)


@dataclass(slots=True)
class JoinableTextTracker:
    """Remembers the texts of one stream that a client may join.

    ``finished_choices`` are the indexes of the finished choices.
    """

    filters: TextFilterFactory
    finished_choices: set[int] = field(default_factory=set)
    _first_values: dict[bytes, bytes] = field(default_factory=dict)  # by text key, both as digests
    _repeated: set[bytes] = field(default_factory=set)  # keys whose value was inspected as repeated
    _forms: dict[int, str] = field(default_factory=dict)
    _content_keys: dict[int, TextKey | None] = field(default_factory=dict)  # None for parts

    def ends_with_choice(self, text: Text) -> bool:
        """Return True if a text is closed when its choice finishes, although more may follow."""
        may_continue = self.filters.texts_continue_after_finish
        return not may_continue or bool(list_enforcing_rules(self.filters.tallies, text))

    def may_inspect_joined_copies(self, frame: Frame, text: Text) -> bool:
        """Return True if copies of a complete text may have to be inspected together."""
        key = _digest_repeatable_key(frame, text.path) if self._first_values else None
        return key in self._first_values and key not in self._repeated

    def must_remove_complete_text(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text must be removed.

        If no rule may withhold findings, mark the text as not inspected together with others.
        """
        enforcing_rules = list_enforcing_rules(self.filters.tallies, text)
        if text.kind == "logprobs" and enforcing_rules:
            return True
        key = _digest_repeatable_key(frame, text.path)
        rules = enforcing_rules or list_inspecting_rules(self.filters.tallies, text)
        if key is None or self._equals_or_becomes_first_value(key, text.text, rules):
            return False
        for tally in () if enforcing_rules else rules:
            tally.opaque = True
        return bool(enforcing_rules)

    def _equals_or_becomes_first_value(
        self, key: bytes, text: str, tallies: Sequence[RuleTally]
    ) -> bool:
        """Remember the first text of a key. Return True for it, and for equal clean texts."""
        digest = _digest_text(text)
        if key not in self._first_values:
            if len(self._first_values) < MAX_TEXT_KEYS:
                self._first_values[key] = digest
        elif self._first_values[key] == digest and key not in self._repeated:
            self._repeated.add(key)
            if has_finding_when_repeated(text, tallies):
                self._first_values[key] = b""
        return self._first_values.get(key) == digest

    def must_remove_open_text(self, frame: Frame, open_text: UnfinishedText) -> bool:
        """Return True if a continued text must be removed.

        If no rule may withhold findings and its choice has finished, record a failure of the rules,
        because they inspect the text in two parts.
        """
        text_key, text, choice = open_text.key, open_text.text, get_choice_index(open_text.key)
        has_ended = choice in self.finished_choices
        if not list_enforcing_rules(self.filters.tallies, text):
            if has_ended and not self.filters.texts_continue_after_finish:
                for tally in list_inspecting_rules(self.filters.tallies, text):
                    tally.record_failure("text_after_finish")
            return False
        if has_ended or frame.family not in CHAT_FAMILIES:
            return has_ended
        if _is_content(text_key, text.path) and text.text:
            content_key = None if isinstance(text_key, Part) else text_key
            if self._content_keys.setdefault(choice, content_key) != content_key:
                # Clients join all content, but each key has a filter of its own.
                return True
        form = _FORM_OF[frame.family] if isinstance(text_key, Part) else str(text.path[2])
        usual = form
        if isinstance(text_key, tuple) and form in _FORMS:
            delta = (frame.doc or {})[str(text.path[0])][text.path[1]].get("delta")
            usual = "delta" if isinstance(delta, dict) else form
        return form in _FORMS and self._forms.setdefault(choice, usual) != form


def _is_content(text_key: Part | TextKey, path: Path) -> bool:
    """Return True for a text that clients show as content, typed or not."""
    if isinstance(text_key, Part):
        return text_key.kind == "text"
    steps = path[4:]
    is_content = path[2:4] == ("delta", "content")
    return is_content and all(isinstance(step, int) or step == "text" for step in steps)


def _digest_text(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


def _digest_repeatable_key(frame: Frame, path: Path) -> bytes | None:
    """Return the digest of the key of a complete text that later documents may repeat, or None."""
    doc, is_chat = frame.doc, frame.family in CHAT_FAMILIES
    if doc is None or isinstance(path[-1], MemberName):
        return None
    # Clients join the names of all chunks.
    is_name = is_chat and is_in_choice(path) and path[-1] == "name"
    if not is_name and is_in_event_value(frame, path):
        return None
    kind = doc.get("type")
    if is_chat:
        return _digest_text(repr(build_text_key(doc, path) if is_in_choice(path) else path))
    has_key = isinstance(kind, str) and kind.endswith("delta")
    return _digest_text(repr((kind, *path))) if has_key else None
