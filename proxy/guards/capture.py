"""Captures redacted texts of a call for its trace, up to a number of characters.

Texts are captured as the upstream gets and sends them, with placeholders. They are redacted on
demand, by the rules of the call that mask, and by guards for credentials and personal identifiers.
Texts that guards inspect as one are redacted as one, so that no part of a value remains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from proxy.call.record import Captured, CapturedText
from proxy.errors.words import MAX_NAME, shorten
from proxy.guards.engine import inspect_now
from proxy.guards.findings import Clock, RuleTally, replace_by_kind
from proxy.guards.stream import frame_texts
from proxy.guards.text.documents import walk_response_document
from proxy.guards.text.walk import Path, Text, find_joined_parts_depth, walk_request
from proxy.types import Json
from proxy.types.events import TOOL_CALL_KINDS, Frame, Part, ResponseEnd
from proxy.types.guard import Capture, GuardPlan, GuardRule, is_contextual, is_service

LOOKAHEAD_CHARS = 8192  # inspected behind the captured characters, to complete findings
MAX_TEXTS = 256
MAX_VALUES = 4096  # maximum values of a request or a frame that are searched for texts
CUT_MARK, WITHHELD_MARK = "…", "[WITHHELD]"
_TURNS = frozenset({"input", "messages"})
_CAPTURED_KINDS = {"content", "prompt", "reasoning", "refusal", "arguments", "name", "tool"}


@dataclass(slots=True)
class CallCapture:
    """Captures the texts of one call. Feed it the frames of the response."""

    capture: Capture
    rules: Sequence[GuardRule]
    request: Json
    clock: Clock
    _responses: dict[tuple[int, int], tuple[Text, list[str]]] = field(default_factory=dict)
    _remaining: int = field(init=False)

    def __post_init__(self) -> None:
        self._remaining = self.capture.max_chars + LOOKAHEAD_CHARS

    def feed(self, frame: Frame) -> None:
        """Store the texts of a frame, up to the maximum number of characters."""
        is_wanted = self.capture.output and self._remaining
        for text_id, text in _iter_texts_with_ids(frame) if is_wanted else ():
            is_full = len(self._responses) >= MAX_TEXTS or self._remaining <= 0
            if text.kind in _CAPTURED_KINDS and not is_full:
                key = frame.model_call, hash(text_id)
                _, pieces = self._responses.setdefault(key, (text, []))
                pieces.append(text.text[: self._remaining])
                self._remaining = max(0, self._remaining - len(text.text))

    def build_captured_texts(self) -> Captured:
        walk = islice(walk_request(self.request), MAX_VALUES) if self.capture.input else ()
        requests = [
            text
            for text in walk
            if isinstance(text, Text) and text.kind in _CAPTURED_KINDS and not text.has_decoded_text
        ]
        responses = [
            text._replace(path=(model_call, *text.path), text="".join(pieces), role="assistant")
            for (model_call, _), (text, pieces) in self._responses.items()
        ]
        return Captured(self._redact_texts(requests), self._redact_texts(responses))

    def redact_error_message(self, message: str) -> str | None:
        """Return the redacted message of an upstream, which may quote the request.

        Return None if the policy does not capture both the request and the response.
        """
        if not (self.capture.input and self.capture.output):
            return None
        text = Text(path=("error", "message"), text=message, kind="content", role="assistant")
        [redacted, *_] = self._redact_texts([text])
        return shorten(redacted.text, MAX_NAME)

    def _redact_texts(self, texts: Sequence[Text]) -> tuple[CapturedText, ...]:
        """Return the texts with every finding replaced, or ``WITHHELD_MARK`` if a rule failed.

        Texts of one message are inspected together, and so are adjacent messages of one role,
        because a finding may span them.
        """
        remaining = self.capture.max_chars + LOOKAHEAD_CHARS
        inspected: list[Text] = []
        for number, text in enumerate(texts[:MAX_TEXTS]):
            message = text.path[:2][-1] if text.path[0] in _TURNS else text.path[0]
            is_part = find_joined_parts_depth(text.path) is not None
            path: Path = ("messages", message, "content", number) if is_part else (number,)
            inspected.append(Text(path, text.text[:remaining], text.kind, role=text.role))
            remaining -= len(text.text)
            if remaining <= 0:
                break
        tallies = [RuleTally(rule, self.clock) for rule in self.rules]
        inspection = inspect_now(tallies, inspected, replace_by_kind)
        withheld = WITHHELD_MARK if inspection.blocked is not None else None
        remaining = self.capture.max_chars
        captured: list[CapturedText] = []
        for text in inspected:
            if remaining <= 0:
                break
            redacted = withheld or inspection.changes.get(text.path, text.text)
            captured_text = (
                redacted if len(redacted) <= remaining else redacted[:remaining] + CUT_MARK
            )
            captured.append(CapturedText(text.role or "user", captured_text))
            remaining -= len(redacted)
        return tuple(captured)


def build_redaction_rules(capture: Capture, guards: GuardPlan) -> tuple[GuardRule, ...]:
    """Return the rules that redact captured texts: none of them needs a service or a context."""
    local = (
        GuardRule(name=rule.name, detector=rule.detector, action="mask", cased=rule.cased)
        for rule in (*guards.input, *guards.output)
        if rule.action == "mask"
        and not is_service(rule.detector)
        and not is_contextual(rule.detector)
    )
    return (*capture.redact, *local)


def _iter_texts_with_ids(frame: Frame) -> Iterator[tuple[object, Text]]:
    """Yield the texts of a frame, each with an id that later frames of the same text repeat.

    All texts of one kind have the same id, except in tool calls.
    """
    if frame.doc is not None and any(isinstance(event, ResponseEnd) for event in frame.events):
        walk = islice(walk_response_document(frame.doc, frame.family, is_event=False), MAX_VALUES)
        yield from ((text.path, text) for text in walk if isinstance(text, Text))
        return
    for item in islice(frame_texts.iter_non_delta_texts(frame), MAX_VALUES):
        if isinstance(item, Text):
            yield frame_texts.get_text_key(frame, item.path) or item.path, item
    for text, key in frame_texts.list_delta_texts(frame):
        is_call = isinstance(key, Part) and key.kind in frame_texts.JSON_KINDS | TOOL_CALL_KINDS
        text_id = frame_texts.get_choice_index(key), key if is_call else text.kind
        yield text_id, text._replace(path=(text.kind,))
