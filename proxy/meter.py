"""The meter of an answer: what a model has written, and what its upstream says it used.

What nobody reports is estimated, by ``proxy.estimate``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proxy.estimate import (
    NOTHING_HIDDEN,
    HiddenOutput,
    interrupted_tokens,
    text_quarters,
    value_quarters,
    whole_tokens,
)
from proxy.index import index_of
from proxy.types.events import (
    Begin,
    Delta,
    Event,
    FamilyName,
    Finish,
    Frame,
    Kind,
    Start,
    UsageReport,
)
from proxy.usage import MAX_TOKENS, Json, Source, Tokens, Usage, read_usage
from proxy.words import MAX_ID, Word, word, word_of

MAX_FINISHES = 128  # choices of one answer whose ends are noted
TEXTS = frozenset({"content", "text", "refusal", "function_call", "tool_calls"})
SPOKEN = frozenset({"content", "text", "reasoning_content", "refusal", "function_call"})

THOUGHTS: frozenset[Kind] = frozenset({"reasoning", "summary"})
CHATS: frozenset[FamilyName] = frozenset({"", "chat", "completions"})
"""The families whose own finish reasons are recorded."""
UNCOUNTED_TEXT: frozenset[Kind] = frozenset({"audio"})
"""Kinds of text that no estimate counts: the audio itself was the output."""

TYPES_OF_PARTS = ("refusal", "text", "thinking")  # of a chat's content, where that is a list


def _call_quarters(call: Any) -> int:
    """Estimate a tool's name and arguments; the ids and numbers around them no model wrote."""
    if not isinstance(call, dict):
        return 0
    return value_quarters([call.get("function"), call.get("custom")])


def answer_quarters(data: Mapping[str, Any]) -> int:
    """Estimate what an answer or a chunk says, in quarters of a token."""
    choices = data.get("choices")
    listed = choices if isinstance(choices, list) else []
    return sum([_choice_quarters(each) for each in listed if isinstance(each, dict)])


def frame_quarters(frame: Frame) -> int:
    """Estimate the output in a frame, in quarters of a token."""
    quarters = 0
    for event in frame.events:
        if type(event) is Delta:
            if event.part.kind not in UNCOUNTED_TEXT:
                quarters += text_quarters(event.text)
        elif type(event) is Begin and event.call is not None:
            quarters += text_quarters(event.call.name)
    return quarters


def _is_text(event: Event) -> bool:
    """Return True for text or a part of a tool call, but not for thoughts."""
    if type(event) is Delta:
        return event.part.kind not in THOUGHTS and bool(event.text)
    return type(event) is Begin and event.call is not None


def _choice_quarters(choice: dict[str, Any]) -> int:
    """Estimate what a model wrote, in quarters of a token. Some servers send the reasoning twice,
    under its two names."""
    message = choice.get("delta") or choice.get("message") or choice
    if type(message) is not dict:
        return 0
    quarters = 0
    for name in message:
        value = message[name]
        if value is None:
            continue
        if name in SPOKEN:
            quarters += text_quarters(value) if type(value) is str else _parts_quarters(value)
        elif name == "reasoning":
            if value and not message.get("reasoning_content"):
                quarters += value_quarters(value)
        elif name in OTHERWISE:
            quarters += OTHERWISE[name](value)
    return quarters


def _has_text(choices: list[Any]) -> bool:
    """Return True if one of the choices has text or a tool call, and not only thoughts."""
    for choice in choices:
        message = choice.get("delta") or choice if type(choice) is dict else None
        if type(message) is dict:
            for name in TEXTS:
                if message.get(name) and not _is_thought(message[name]):
                    return True
    return False


def _is_thought(content: Any) -> bool:
    """Return True for a list of parts that are all thoughts."""
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "thinking" for part in content
    )


def _parts_quarters(value: Any) -> int:
    """Estimate what a list of parts says, without the words for their types: a stream has these in
    each of its chunks."""
    if isinstance(value, list):
        return sum(map(_parts_quarters, value))
    if isinstance(value, dict) and value.get("type") in TYPES_OF_PARTS:
        return sum(_parts_quarters(value[name]) for name in value if name != "type")
    return value_quarters(value)


def _calls_quarters(calls: Any) -> int:
    return sum(map(_call_quarters, calls)) if isinstance(calls, list) else 0


def _beside_quarters(block: Any) -> int:
    """Estimate what an event of Responses says beside the words of a chat: in a delta of another
    kind, as the code that a provider runs, and in items that no delta has said."""
    if not isinstance(block, dict):
        return 0
    delta = block.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    quarters = _text_quarters(delta.get("delta")) + _text_quarters(delta.get("partial_json"))
    for event in (block.get("start"), block.get("event")):
        if isinstance(event, dict):
            response = event.get("response")
            missing = response.get("output") if isinstance(response, dict) else None
            quarters += _item_quarters(event.get("item"))
            quarters += sum(_item_quarters(each.get("item")) for each in _objects(missing))
    return quarters


def _item_quarters(item: Any) -> int:
    if not isinstance(item, dict):
        return 0
    parts = [*_objects(item.get("content")), *_objects(item.get("summary"))]
    texts = [part.get(name) for part in parts for name in ("text", "refusal")]
    return sum(map(_text_quarters, (*texts, item.get("arguments"), item.get("input"))))


def _text_quarters(text: Any) -> int:
    return text_quarters(text) if isinstance(text, str) else 0


OTHERWISE: Mapping[str, Callable[[Any], int]] = {
    "tool_calls": _calls_quarters,
    "block": _beside_quarters,
}
"""What of a message is no text of its own, and what estimates it."""


def _objects(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


class Meter:
    """Counts one leg's answer while it passes. Moments are monotonic seconds. ``text_at`` is that
    of the first text of a stream that is no thought, before which ``thought_quarters`` came.

    ``usage`` in streams is cumulative, so the last valid one counts and none are added up. One that
    more text follows is not the last word. Without ``estimates`` only reported usage counts, and
    its source is ``unreported`` if there is none.
    """

    __slots__ = (
        "answer_id",
        "answer_model",
        "estimates",
        "finish_reasons",
        "first_token_at",
        "invalid_usage",
        "last_token_at",
        "output_quarters",
        "reported",
        "reported_quarters",
        "text_at",
        "thought_quarters",
        "unreported",
    )

    def __init__(self, *, estimates: bool = True, unreported: Source = "none") -> None:
        self.estimates = estimates
        self.unreported = unreported
        self.answer_id: Word | None = None
        self.answer_model: Word | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.text_at: float | None = None
        self.output_quarters = self.thought_quarters = 0
        self.reported: Tokens | None = None
        self.reported_quarters = 0
        self.invalid_usage = 0
        self.finish_reasons: dict[int, Word] = {}

    def feed(self, data: Mapping[str, Any] | None, now: float, quarters: int | None = None) -> None:
        """Take one answer or stream event in OpenAI's form, with the estimate of what it says where
        that was made before."""
        if data is None:
            return
        if self.answer_id is None:
            self.answer_id = word_of(data.get("id"), MAX_ID)
            self.answer_model = word_of(data.get("model"), MAX_ID)
        if "choices" in data and type(data["choices"]) is list:
            size = self._choices(data["choices"], quarters)
            if size:
                if self.text_at is None and not self.finish_reasons:
                    self._begin(data["choices"], size, now)
                self.output_quarters += size
                self.last_token_at = now
                first = self.first_token_at
                self.first_token_at = now if first is None else first
        if "usage" in data and data["usage"] is not None:
            self.report(read_usage(data["usage"]))

    def feed_frame(self, frame: Frame, now: float) -> None:
        """Take one frame of an answer."""
        events, doc = frame.events, frame.doc
        if len(events) > 1 or (events and type(events[0]) is not Delta):
            for event in events:
                self._note(event, frame.family)
        if self.answer_id is None and doc is not None:  # some name it in a later chunk
            self.answer_id = word_of(doc.get("id"), MAX_ID)
            self.answer_model = word_of(doc.get("model"), MAX_ID)
        size = frame_quarters(frame) if frame.quarters is None else frame.quarters
        if size:
            self._add(events, size, now)
        if len(events) > 1 or (events and type(events[0]) is UsageReport):
            for event in events:
                if type(event) is UsageReport:
                    self.report(event.tokens)

    def _note(self, event: Event, family: FamilyName) -> None:
        """Note the identity of an answer, or how one of its choices finished."""
        if type(event) is Start:
            self.answer_id = word_of(event.id, MAX_ID)
            self.answer_model = word_of(event.model, MAX_ID)
        elif type(event) is Finish:
            known = self.finish_reasons
            if event.choice in known or len(known) < MAX_FINISHES:
                is_own = event.reason == "other" or family in CHATS
                known[event.choice] = word((is_own and event.native) or event.reason)

    def _add(self, events: Iterable[Event], size: int, now: float) -> None:
        """Count events with output of ``size`` quarters of a token."""
        if self.text_at is None and not self.finish_reasons:
            if any([_is_text(event) for event in events]):
                self.text_at = now
            else:
                self.thought_quarters += size
        self.output_quarters += size
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at = now

    def _begin(self, choices: list[Any], size: int, now: float) -> None:
        """Note the first text of a stream, or thoughts before it."""
        if _has_text(choices[:MAX_FINISHES]):
            self.text_at = now
        else:
            self.thought_quarters += size

    def report(self, tokens: Tokens | None) -> None:
        """Take reported usage, None for an invalid value."""
        if tokens is None:
            self.invalid_usage += 1
        else:
            self.reported, self.reported_quarters = tokens, self.output_quarters

    def _choices(self, choices: list[Any], known: int | None) -> int:
        """Note how choices finished, of many whose estimate is ``known`` only the first. Return the
        estimate of what they say."""
        size = known or 0
        for choice in choices if known is None else choices[:MAX_FINISHES]:
            if type(choice) is dict:
                if "finish_reason" in choice and choice["finish_reason"] is not None:
                    self._finish(choice, choice["finish_reason"])
                if known is None:
                    size += _choice_quarters(choice)
        return size

    def _finish(self, choice: Json, reason: Any) -> None:
        if type(reason) is not str:
            return
        number = choice.get("index")
        if type(number) is not int:
            number = index_of(choice, 0)
        if number in self.finish_reasons or len(self.finish_reasons) < MAX_FINISHES:
            self.finish_reasons[number] = word(reason)

    def settle(
        self,
        prompt_quarters: Callable[[], int],
        *,
        finished: bool,
        hidden_output: Callable[[], HiddenOutput] = lambda: NOTHING_HIDDEN,
    ) -> Usage:
        """Return what was used: as reported at the end of the answer, else by the estimate.

        Of an answer that was not read to its end it is the larger of both; the estimate includes
        what the model may have written without sending it, ``hidden_output``. What was reported
        before more text came is no more than a lower bound either; its 0 for the prompt is no
        report.
        Of one that is not estimated nothing is known that was not reported, read to its end or not.
        """
        reported = self.reported
        if not self.estimates and (finished or reported is None):
            return Usage(reported or Tokens(), self.unreported if reported is None else "provider")
        if finished and reported is not None and self.reported_quarters >= self.output_quarters:
            return Usage(reported, "provider")
        completion = whole_tokens(self.output_quarters)
        if not finished:
            thoughts = whole_tokens(self.thought_quarters)
            written = interrupted_tokens(thoughts, completion - thoughts, hidden_output())
            larger = (reported or Tokens()).at_least(
                whole_tokens(prompt_quarters()), min(written, MAX_TOKENS)
            )
            return Usage(larger, "partial_estimate")
        known = reported or Tokens()
        prompt = 0 if known.prompt_total else whole_tokens(prompt_quarters())
        larger = known.at_least(prompt, completion)
        return Usage(larger, "provider" if larger == reported else "partial_estimate")
