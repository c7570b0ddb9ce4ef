"""What may be shown of a call's texts: what policy asks for, redacted, and never more than so much.

Texts are taken as the upstream is sent them and as it answers, before anything is put back that was
masked. They are redacted only when somebody asks for them, by all guards of the call that mask and
by those for credentials and personal identifiers. Texts that guards read together are redacted
together, so that a value split between two of them is in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from proxy.call.record import Captured, CapturedText
from proxy.errors import ProxyError
from proxy.errors.words import MAX_NAME, word
from proxy.guards.engine import inspect_now
from proxy.guards.errors import error_texts
from proxy.guards.findings.mask import named
from proxy.guards.findings.tally import Clock, RuleTally
from proxy.guards.stream.texts import (
    JSON_KINDS,
    choice_of,
    delta_texts,
    other_texts,
    place_of,
)
from proxy.guards.text.native import native_walk
from proxy.guards.text.walk import Path, Text, parts_of, request_walk
from proxy.types import Json
from proxy.types.events import CALLS, Frame, Part, Stop
from proxy.types.guard import Capture, GuardPlan, GuardRule, is_contextual, is_service

BEYOND = 8192  # characters that are read beyond what is shown: what begins before is found whole
MOST_TEXTS = 256
MOST_VALUES = 4096  # of a question, or of a chunk, that are looked through for them
CUT, WITHHELD = "…", "[WITHHELD]"
TURNS = frozenset({"input", "messages"})
_SHOWN = frozenset({"content", "prompt", "reasoning", "refusal", "arguments", "name", "tool"})


@dataclass(slots=True)
class Capturing:
    """The texts of one call. Feed it the answer; ask it once, when the call has ended."""

    capture: Capture
    rules: Sequence[GuardRule]
    asked: Json
    clock: Clock
    _answers: dict[tuple[int, int], tuple[Text, list[str]]] = field(default_factory=dict)
    _room: int = field(init=False)

    def __post_init__(self) -> None:
        self._room = self.capture.max_chars + BEYOND

    def feed(self, frame: Frame) -> None:
        """Keep the texts of a frame, as long as there is room."""
        if self.capture.output and self._room > 0:
            for at, text in _texts_of(frame):
                self._add((frame.model_call, hash(at)), text)

    def _add(self, text_id: tuple[int, int], text: Text) -> None:
        if self._room > 0 and text.kind in _SHOWN and len(self._answers) < MOST_TEXTS:
            _, pieces = self._answers.setdefault(text_id, (text, []))
            pieces.append(text.text[: self._room])
            self._room -= len(text.text)

    def shown(self) -> Captured:
        """Return the texts that may be shown, redacted."""
        found = islice(request_walk(self.asked), MOST_VALUES) if self.capture.input else ()
        asked = [each for each in found if isinstance(each, Text) and _is_shown(each)]
        answered = [
            text._replace(path=(leg, *text.path), text="".join(pieces), role="assistant")
            for (leg, _), (text, pieces) in self._answers.items()
        ]
        return Captured(self._redacted(asked), self._redacted(answered))

    def shown_error(self, error: ProxyError) -> str | None:
        """Return the redacted message of an upstream, which may quote the request. None if the
        policy does not capture both the request and the response."""
        if not (self.capture.input and self.capture.output):
            return None
        [message, *_] = self._redacted(error_texts(error)[:1])
        return word(message.text, MAX_NAME)

    def _redacted(self, texts: Sequence[Text]) -> tuple[CapturedText, ...]:
        """Return texts with every finding replaced; ``WITHHELD`` if a rule failed on them.

        All texts of a message are read as its parts, and messages of one role as guards read them.
        """
        room = self.capture.max_chars + BEYOND
        read: list[Text] = []
        for at, text in enumerate(texts[:MOST_TEXTS]):
            is_part = parts_of(text.path) is not None
            message = text.path[:2][-1] if text.path[0] in TURNS else text.path[0]
            path: Path = ("messages", message, "content", at) if is_part else (at,)
            read.append(Text(path=path, text=text.text[:room], kind=text.kind, role=text.role))
            room -= len(text.text)
            if room <= 0:
                break
        tallies = [RuleTally(rule, self.clock) for rule in self.rules]
        inspection = inspect_now(tallies, read, named)
        withheld = WITHHELD if inspection.blocked is not None else None
        safe = [
            (text.role or "user", withheld or inspection.changes.get(text.path, text.text))
            for text in read
        ]
        return tuple(_cut(safe, self.capture.max_chars))


def _cut(texts: Iterable[tuple[str, str]], most: int) -> Iterator[CapturedText]:
    """Yield texts until they have so many characters."""
    for role, text in texts:
        if most <= 0:
            return
        yield CapturedText(role, text if len(text) <= most else text[:most] + CUT)
        most -= len(text)


def redacting(capture: Capture, guards: GuardPlan) -> tuple[GuardRule, ...]:
    """Return the rules by which a call's texts are redacted."""
    masks = (rule for rule in (*guards.input, *guards.output) if rule.action == "mask")
    local = (
        rule for rule in masks if not is_service(rule.detector) and not is_contextual(rule.detector)
    )
    return (
        *capture.redact,
        *(
            GuardRule(name=rule.name, detector=rule.detector, action="mask", cased=rule.cased)
            for rule in local
        ),
    )


def _is_shown(text: Text) -> bool:
    return text.kind in _SHOWN and not text.decoded


def _texts_of(frame: Frame) -> Iterator[tuple[object, Text]]:
    """Yield the texts of a frame, and what tells each from others. Texts of a kind are one, except
    those of tool calls."""
    is_whole = any(isinstance(event, Stop) for event in frame.events) and frame.doc is not None
    walk = native_walk(frame.doc or {}, frame.family, cut=False) if is_whole else other_texts(frame)
    for found in islice(walk, MOST_VALUES):
        if isinstance(found, Text):
            place_in = None if is_whole else place_of(frame, found.path)
            yield place_in or found.path, found
    for text, place, _ in () if is_whole else delta_texts(frame):
        of = place if isinstance(place, Part) and place.kind in JSON_KINDS | CALLS else text.kind
        yield (choice_of(place), of), text._replace(path=(text.kind,))
