"""What may be shown of a call's texts: what policy asks for, redacted, and never more than so much.

Texts are taken as the upstream is sent them and as it answers, before anything is put back that was
masked. They are redacted only when somebody asks for them, by all guards of the call that mask and
by those for credentials and personal identifiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from proxy.errors import GuardBlocked
from proxy.guardrails.findings.mask import find_matches, masked, named
from proxy.guardrails.findings.tally import Clock, RuleTally
from proxy.guardrails.stream.chunk_parts import going_on
from proxy.guardrails.text.normalize import variants
from proxy.guardrails.text.walk import Text, answer_walk, request_walk
from proxy.record import Captured, CapturedText
from proxy.types import Chunk, Json
from proxy.types.guard import Capture, Guarding, GuardRule, is_contextual, is_service

BEYOND = 8192  # characters that are read beyond what is shown: what begins before is found whole
MOST_TEXTS = 256
MOST_VALUES = 4096  # of a question, or of a chunk, that are looked through for them
CUT, WITHHELD = "…", "[WITHHELD]"
_SHOWN = frozenset({"content", "prompt", "reasoning", "refusal", "arguments", "name", "tool"})


@dataclass(slots=True)
class Capturing:
    """The texts of one call. Feed it the answer; ask it once, when the call has ended."""

    capture: Capture
    rules: Sequence[GuardRule]
    asked: Json
    clock: Clock
    _answers: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    _room: int = field(init=False)

    def __post_init__(self) -> None:
        self._room = self.capture.max_chars + BEYOND

    def feed(self, chunk: Chunk) -> None:
        """Keep the texts of a chunk, as long as there is room."""
        if not self.capture.output or chunk.data is None or self._room <= 0:
            return
        for text in islice(answer_walk(chunk.data, cut=True), MOST_VALUES):
            if self._room <= 0:
                return
            if isinstance(text, Text) and text.kind in _SHOWN and len(self._answers) < MOST_TEXTS:
                text_id = (chunk.leg, _text_id(chunk.data, text))
                self._answers.setdefault(text_id, []).append(text.text[: self._room])
                self._room -= len(text.text)

    def shown(self) -> Captured:
        """Return the texts that may be shown, redacted."""
        found = islice(request_walk(self.asked), MOST_VALUES) if self.capture.input else ()
        texts = (each for each in found if isinstance(each, Text) and _is_shown(each))
        asked = ((text.role or "user", text.text) for text in texts)
        answers = (("assistant", "".join(parts)) for parts in self._answers.values())
        return Captured(self._redacted(islice(asked, MOST_TEXTS)), self._redacted(answers))

    def _redacted(self, texts: Iterable[tuple[str, str]]) -> tuple[CapturedText, ...]:
        return tuple(CapturedText(role, text) for role, text in self._cut(texts))

    def _cut(self, texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        left = self.capture.max_chars
        for role, text in texts:
            if left <= 0:
                return
            safe = redacted(self.rules, text[: left + BEYOND], self.clock)
            yield role, safe if len(safe) <= left else safe[:left] + CUT
            left -= len(safe)


def redacting(capture: Capture, guards: Guarding) -> tuple[GuardRule, ...]:
    """Return the rules by which a call's texts are redacted."""
    masks = (rule for rule in (*guards.input, *guards.output) if rule.action == "mask")
    local = (
        rule for rule in masks if not is_service(rule.detector) and not is_contextual(rule.detector)
    )
    return (
        *capture.redact,
        *(replace(rule, shadow=False, on_error="closed") for rule in local),
    )


def redacted(rules: Sequence[GuardRule], text: str, clock: Clock) -> str:
    """Return a text with every finding replaced, or ``WITHHELD`` if a rule failed on it."""
    views = variants(text)
    try:
        found = [
            match
            for number, rule in enumerate(rules)
            for match in find_matches(RuleTally(rule, clock), number, views)
        ]
    except GuardBlocked:
        return WITHHELD
    return masked(text, sorted(found, key=lambda match: match.order), rules, named)


def _is_shown(text: Text) -> bool:
    return text.kind in _SHOWN and not text.decoded


def _text_id(data: Json, text: Text) -> int:
    """Return by what guards know which texts of a stream are one."""
    place = going_on(data, text)
    return hash(text.path if place is None else place)
