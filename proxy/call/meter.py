"""Meters a response: reported usage, estimated output, and the time of the first token."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from proxy.errors.words import MAX_ID, BoundedText, read_text, shorten
from proxy.money.estimate import (
    NOTHING_HIDDEN,
    HiddenOutput,
    estimate_interrupted_output,
    estimate_text_quarters,
    to_tokens,
)
from proxy.money.usage import MAX_TOKENS, Source, Tokens, Usage
from proxy.types.events import (
    Delta,
    Event,
    FamilyName,
    Finish,
    Frame,
    Kind,
    PartStart,
    ResponseStart,
    UsageReport,
)

MAX_FINISH_REASONS = 128  # choices of a response whose finish reason is recorded
REASONING_KINDS: frozenset[Kind] = frozenset({"reasoning", "summary"})
CHAT_FAMILIES: frozenset[FamilyName] = frozenset({"", "chat", "completions"})
"""Families whose native finish reasons are recorded."""
UNCOUNTED_TEXT: frozenset[Kind] = frozenset({"audio"})
"""Kinds of text that no estimate counts: a transcript accompanies audio output."""


def estimate_frame_quarters(frame: Frame) -> int:
    """Estimate the output in a frame, in quarters of a token."""
    quarters = 0
    for event in frame.events:
        if type(event) is Delta:
            if event.part.kind not in UNCOUNTED_TEXT:
                quarters += estimate_text_quarters(event.text)
        elif type(event) is PartStart and event.call is not None:
            quarters += estimate_text_quarters(event.call.name)
    return quarters


def _is_visible_output(event: Event) -> bool:
    if type(event) is Delta:
        return event.part.kind not in REASONING_KINDS and bool(event.text)
    return type(event) is PartStart and event.call is not None


@dataclass(slots=True, eq=False)
class Meter:
    """Meters the response of one model call. Moments are monotonic seconds.

    - ``text_at``: time of the first text that is not reasoning.
    - ``reasoning_quarters``: estimated reasoning before that text.
    - ``reported``: the last valid usage report. Later text makes it a lower bound.
    - ``estimates``: if False, only reported usage counts. ``unreported`` is then the source of a
      response without a report.
    """

    estimates: bool = True
    unreported: Source = "none"
    response_id: BoundedText | None = None
    response_model: BoundedText | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    text_at: float | None = None
    output_quarters: int = 0
    reasoning_quarters: int = 0
    reported: Tokens | None = None
    reported_quarters: int = 0
    invalid_usage: int = 0
    finish_reasons: dict[int, BoundedText] = field(default_factory=dict)

    def feed(self, frame: Frame, now: float) -> None:
        events, doc = frame.events, frame.doc
        if len(events) > 1 or (events and type(events[0]) is not Delta):
            self._record_ids_and_finish_reasons(events, frame.family)
        if (
            self.response_id is None and doc is not None
        ):  # some servers send the id in a later chunk
            self.response_id = read_text(doc.get("id"), MAX_ID)
            self.response_model = read_text(doc.get("model"), MAX_ID)
        size = estimate_frame_quarters(frame) if frame.quarters is None else frame.quarters
        if size:
            self._add_estimate(events, size, now)
        if len(events) > 1 or (events and type(events[0]) is UsageReport):
            for event in events:
                if type(event) is UsageReport:
                    self.set_reported_usage(event.tokens)

    def _record_ids_and_finish_reasons(self, events: Iterable[Event], family: FamilyName) -> None:
        """Record the identity of the response and its finish reasons."""
        for event in events:
            if type(event) is ResponseStart:
                self.response_id = read_text(event.id, MAX_ID)
                self.response_model = read_text(event.model, MAX_ID)
            elif type(event) is Finish:
                reasons = self.finish_reasons
                if event.choice in reasons or len(reasons) < MAX_FINISH_REASONS:
                    is_own = event.reason == "other" or family in CHAT_FAMILIES
                    reasons[event.choice] = shorten((is_own and event.native) or event.reason)

    def _add_estimate(self, events: Iterable[Event], size: int, now: float) -> None:
        if self.text_at is None and not self.finish_reasons:
            if any([_is_visible_output(event) for event in events]):
                self.text_at = now
            else:
                self.reasoning_quarters += size
        self.output_quarters += size
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at = now

    def set_reported_usage(self, tokens: Tokens | None) -> None:
        """Record reported usage. None is an invalid value."""
        if tokens is None:
            self.invalid_usage += 1
        else:
            self.reported, self.reported_quarters = tokens, self.output_quarters

    def compute_usage(
        self,
        prompt_quarters: Callable[[], int],
        *,
        finished: bool,
        hidden_output: Callable[[], HiddenOutput] = lambda: NOTHING_HIDDEN,
    ) -> Usage:
        """Return the usage: as reported at the end of the response, otherwise estimated.

        For an incomplete response it is the larger of both, and the estimate includes
        ``hidden_output``. Usage that was reported before the last text is a lower bound.
        """
        reported = self.reported
        if not self.estimates and (finished or reported is None):
            return Usage(reported or Tokens(), self.unreported if reported is None else "provider")
        if finished and reported is not None and self.reported_quarters >= self.output_quarters:
            return Usage(reported, "provider")
        completion = to_tokens(self.output_quarters)
        if not finished:
            thoughts = to_tokens(self.reasoning_quarters)
            written = estimate_interrupted_output(thoughts, completion - thoughts, hidden_output())
            prompt, completion = to_tokens(prompt_quarters()), min(written, MAX_TOKENS)
            return Usage(
                (reported or Tokens()).with_at_least(prompt, completion), "partial_estimate"
            )
        usage_so_far = reported or Tokens()
        prompt = 0 if usage_so_far.prompt_total else to_tokens(prompt_quarters())
        larger = usage_so_far.with_at_least(prompt, completion)
        return Usage(larger, "provider" if larger == reported else "partial_estimate")
