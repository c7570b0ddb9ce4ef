"""Reads chat completions and legacy completions, streamed or whole, into frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any

from proxy.dialects.chat.choices import (
    CHAT,
    IDENTITY_MEMBERS,
    MAX_PARTS,
    PADDING_MEMBER,
    SILENT_MEMBERS,
    Choice,
    ChoiceReader,
    MessageUnit,
    TextLayout,
)
from proxy.dialects.chat.chunk_shape import MAKE_TUPLE, ChunkShape
from proxy.dialects.chat.merging import split_into_chunks
from proxy.dialects.chat.splitting import split_document
from proxy.dialects.chat.tool_calls import EMPTY_ARGUMENTS
from proxy.dialects.document import read_chat_usage_report
from proxy.dialects.family import ReadOptions, has_shape, make_incomplete_stream_error
from proxy.dialects.findings import make_finding_events
from proxy.dialects.frames.sequencer import JSON_SPACE
from proxy.dialects.wire.strict_json import get_int
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from proxy.types.events import (
    RESPONSE_END,
    VISIBLE_KINDS,
    Attach,
    Delta,
    Event,
    Finish,
    Frame,
    Part,
    PartStart,
    ResponseStart,
    Unmapped,
    get_index,
    replace_at_slot,
)

_WITHOUT_CONTENT = frozenset({"role", "index", "finish_reason", "logprobs"})


class ChatReader:
    """Reads one chat or legacy completion.

    For a client of another family, arguments ``{}`` at the start of a tool call are held back,
    because some servers send them as a placeholder before the real ones.
    """

    def __init__(self, options: ReadOptions, layout: TextLayout = CHAT) -> None:
        if options.whole and not options.stream and layout.whole is not None:
            layout = layout.whole
        self._options = options
        self._layout = layout
        self._is_translated = options.is_translated
        self._splits = options.inspect or options.is_translated
        self._inspect = options.inspect and not options.is_translated
        self._choices = ChoiceReader(layout, options)
        self._is_started = False
        self._only_choice: int | None = None  # number of the choice if the client gets only one
        self._shape: ChunkShape | None = None
        self._held: dict[Part, str] = {}  # held placeholder arguments (``{}``), by tool call

    def read(self, doc: Json, raw: bytes | None) -> Sequence[Frame]:
        options = self._options
        if self._splits and PADDING_MEMBER in doc:
            doc, raw = {name: value for name, value in doc.items() if name != PADDING_MEMBER}, None
        if self._shape is not None:
            delta = self._shape.read_matching_delta(doc)
            if delta is not None:
                fields = (delta,), self._layout.family, doc, raw, options.model_call, 0, False, None
                return (MAKE_TUPLE(Frame, fields),)
        if self._splits and (options.is_translated or options.stream or not options.whole):
            numbered = self._filter_and_renumber_choices(doc)
            raw = raw if numbered is doc else None
            doc = numbered
        if options.finish_reasons:
            doc, raw = _convert_finish_reasons(doc, raw, options.finish_reasons)
        if not options.whole:
            return self._read_document(doc, raw)
        if options.stream:
            parts = [self._read_document(chunk, None) for chunk in split_into_chunks(doc)]
            return [*chain(*parts), *self.end(has_done_marker=True)]
        events = self._make_start_events(doc)
        choices = self._read_choices(doc)
        events += [*_collect_choice_events(choices), *_read_usage_and_findings(doc)]
        events += [Finish(choice.number, "stop") for choice in choices if choice.finish is None]
        return [self._make_frame((*events, RESPONSE_END), doc, raw)]

    def end(self, *, has_done_marker: bool = False) -> Sequence[Frame]:
        finished = self._choices.finished
        if not has_done_marker and not finished:
            raise make_incomplete_stream_error()
        frames = self._release_held_arguments()
        missing = sorted(self._choices.part_counts.keys() - finished) or ([] if finished else [0])
        events = [Finish(number, "stop") for number in missing if self._is_started]
        return [*frames, self._make_frame((*events, RESPONSE_END))]

    def _make_frame(
        self, events: tuple[Event, ...], doc: Json | None = None, raw: bytes | None = None
    ) -> Frame:
        model_call = self._options.model_call
        return Frame(events, self._layout.family, doc, raw=raw, model_call=model_call)

    def _read_document(self, doc: Json, raw: bytes | None) -> list[Frame]:
        self._shape = None
        head = self._make_start_events(doc)
        choices = self._read_choices(doc)
        tail = _read_usage_and_findings(doc)
        if self._inspect and (
            any(choice.has_unread_members for choice in choices)
            or not has_shape(doc, SILENT_MEMBERS)
            or any(type(choice) is not dict for choice in doc.get("choices") or ())
        ):
            tail.append(Unmapped())
        if self._is_translated:
            frames = self._make_frames_for_other_api(doc, raw, head, choices, tail)
        elif self._inspect and _must_split_document(choices):
            frames = self._split_document(doc, head, choices, tail)
        else:
            frames = [self._make_frame((*head, *_collect_choice_events(choices), *tail), doc, raw)]
        if self._inspect:
            frames = [moved for frame in frames for moved in self._move_to_first_member(frame)]
        if not tail and frames[-1].doc is not None:
            self._store_chunk_shape(doc, choices)
        return frames

    def _read_choices(self, doc: Json) -> list[Choice]:
        listed = doc.get("choices")
        if type(listed) is not list:
            return []
        return [
            self._choices.read(value, position, doc.get("id"))
            for position, value in enumerate(listed)
            if type(value) is dict
        ]

    def _filter_and_renumber_choices(self, doc: Json) -> Json:
        """Return a document whose choices have integer numbers.

        A client that gets one choice gets the first choice with content, as number 0. A number
        that is not from 0 to ``MAX_PARTS`` raises ``UpstreamInvalid`` if its choice has content,
        otherwise the choice is removed.
        """
        listed, choices = doc.get("choices"), list[Any]()
        values = listed if type(listed) is list else []
        gets_one = self._is_translated or self._options.one_choice
        first_number = self._choose_choice_to_send(values) if gets_one else None
        for position, value in enumerate(values):
            if type(value) is not dict:
                choices.append(value)
                continue
            number = get_index(value, position)
            if gets_one:
                if number != first_number:
                    continue
                number = 0
            elif not 0 <= number < MAX_PARTS:
                if self._has_content(value):
                    raise UpstreamInvalid("The upstream sent a choice with an invalid index.")
                continue
            is_same = value.get("index") == number and type(value["index"]) is int
            choices.append(value if is_same else {**value, "index": number})
        is_same = type(listed) is not list or (
            len(choices) == len(listed) and all(map(is_, choices, listed))
        )
        return doc if is_same else {**doc, "choices": choices}

    def _choose_choice_to_send(self, values: list[Any]) -> int | None:
        """Return the number of the choice to send: the first with content, else the first."""
        if self._only_choice is not None:
            return self._only_choice
        choices = [(get_index(v, n), v) for n, v in enumerate(values) if type(v) is dict]
        self._only_choice = next((n for n, v in choices if self._has_content(v)), None)
        return choices[0][0] if self._only_choice is None and choices else self._only_choice

    def _has_content(self, choice: Json) -> bool:
        holder = self._layout.holder
        message = choice.get(holder) if holder else choice
        if type(message) is not dict:
            return bool(message)
        return any(value for name, value in message.items() if name not in _WITHOUT_CONTENT)

    def _make_start_events(self, doc: Json) -> list[Event]:
        """Return the start event at the first document with an id, a choice or usage."""
        id_, model = doc.get("id"), doc.get("model")
        if self._is_started or not (id_ or doc.get("choices") or doc.get("usage") is not None):
            return []
        self._is_started = True
        return [
            ResponseStart(
                id_ if type(id_) is str else None,
                model if type(model) is str else None,
                get_int(doc, "created"),
            )
        ]

    def _make_frames_for_other_api(
        self,
        doc: Json,
        raw: bytes | None,
        head: list[Event],
        choices: list[Choice],
        tail: list[Event],
    ) -> list[Frame]:
        """Return the frames of a document for a client with another API family."""
        # Only a document with a single text is kept in its frame.
        units = [unit for choice in choices for unit in choice.units]
        finishes = [choice.finish for choice in choices if choice.finish is not None]
        is_single = len(units) == 1 and not (finishes or units[0].is_changed or self._held)
        if is_single and not _is_placeholder_tool_call(units[0]):
            return [self._make_frame((*head, *units[0].texts[0], *tail), doc, raw)]
        frames: list[Frame] = []
        for unit in units:
            events = unit.texts[0]
            if unit.name == "tool_calls":
                events = self._hold_placeholder_arguments(unit)
            else:
                frames += self._release_held_arguments()
            if head or events:
                frames.append(self._make_frame((*head, *events)))
            head = []
        if finishes:
            frames += self._release_held_arguments()
        remaining = (*head, *finishes, *tail)
        if remaining or not frames:
            frames.append(self._make_frame(remaining, None if units else doc))
        return frames

    def _hold_placeholder_arguments(self, unit: MessageUnit) -> tuple[Event, ...]:
        """Return a tool call's events. Hold arguments ``{}``, and drop them if others follow."""
        events = unit.texts[0]
        delta = events[-1] if events else None
        if type(delta) is not Delta:
            return events
        if _is_placeholder_tool_call(unit):
            self._held[delta.part] = delta.text
            return events[:-1]
        pending = self._held.pop(delta.part, "") if delta.text.strip(JSON_SPACE) else ""
        if pending and not delta.text.lstrip(JSON_SPACE).startswith("{"):
            delta = delta._replace(text=pending + delta.text)
        return (*events[:-1], delta)

    def _release_held_arguments(self) -> list[Frame]:
        pending, self._held = self._held, {}
        return [self._make_frame((Delta(part, text),)) for part, text in pending.items()]

    def _split_document(
        self, doc: Json, head: list[Event], choices: list[Choice], tail: list[Event]
    ) -> list[Frame]:
        """Return frames with one text each. Usage is in the last one, if that has a finish."""
        natives = tuple(event for event in tail if type(event) is Unmapped)
        other_events = tuple(event for event in tail if type(event) is not Unmapped)
        frames: list[Frame] = []
        for events, part in split_document(doc, choices, self._layout):
            frames.append(self._make_frame((*head, *events, *natives), part))
            head = []
        if not other_events:
            return frames
        usage = {"usage": doc["usage"]} if "usage" in doc else {}
        last_frame = frames[-1]
        if any(type(event) is Finish for event in last_frame.events):
            end = {**(last_frame.doc or {}), **usage}
            frames[-1] = self._make_frame((*last_frame.events, *other_events), end)
            return frames
        identity: Json = {name: doc[name] for name in IDENTITY_MEMBERS if name in doc}
        end = {**identity, "choices": [], **usage}
        return [*frames, self._make_frame((*other_events, *natives), end)]

    def _move_to_first_member(self, frame: Frame) -> list[Frame]:
        """Return frames with the text in the same member as the first text of its part.

        Guards read all texts of a part as one text, so a client that reads one member must get all
        of them.
        """
        doc = frame.doc
        delta = next((event for event in frame.events if type(event) is Delta), None)
        if doc is None or delta is None or delta.part.kind not in VISIBLE_KINDS:
            return [frame]
        members = tuple(step for step in delta.slot[2:] if type(step) is str)
        if self._choices.claim_text_member(delta.part, members):
            return [frame]
        moved = self._make_frame((delta._replace(slot=()),))
        other_events = tuple(e for e in frame.events if type(e) not in (Delta, Attach))
        if not other_events:
            return [moved]
        for event in frame.events:
            if type(event) is Delta or type(event) is Attach:
                doc = replace_at_slot(doc, event.slot, "" if event is delta else None)
        return [self._make_frame(other_events, doc), moved]

    def _store_chunk_shape(self, doc: Json, choices: list[Choice]) -> None:
        """Store the shape of a document that is one delta, to recognize the next such document."""
        if len(choices) != 1 or len(doc["choices"]) != 1 or (self._held and self._is_translated):
            return
        if self._only_choice not in (None, 0):  # the next document may have another choice
            return
        [choice] = choices
        if len(choice.units) != 1 or choice.finish is not None or choice.value.get("logprobs"):
            return
        [unit] = choice.units
        delta = unit.texts[0][-1] if unit.texts[0] else None
        if type(delta) is not Delta or unit.is_changed or delta.slot[1] != 0:
            return
        if len(delta.slot) == (4 if self._layout.holder else 3):
            self._shape = ChunkShape(doc, self._layout.holder, delta, exact=self._splits)


def _read_usage_and_findings(doc: Json) -> list[Event]:
    usage = read_chat_usage_report(doc)
    return [*(() if usage is None else (usage,)), *make_finding_events(doc)]


def _collect_choice_events(choices: list[Choice]) -> list[Event]:
    events: list[Event] = []
    for choice in choices:
        for unit in choice.units:
            for text in unit.texts:
                events += text
        if choice.finish is not None:
            events.append(choice.finish)
    return events


def _must_split_document(choices: list[Choice]) -> bool:
    """Return True if one frame cannot represent a document.

    It has several texts or finish reasons, a text and a finish reason, a renumbered tool call or a
    repeated choice. The first entry of a repeated choice may end the text of the second.
    """
    if len({choice.number for choice in choices}) < len(choices):
        return True
    texts = sum(len(unit.texts) for choice in choices for unit in choice.units)
    ends = sum(choice.finish is not None for choice in choices)
    if texts > 1 or ends > 1 or (texts and ends):
        return True
    return any(unit.is_changed for choice in choices for unit in choice.units)


def _is_placeholder_tool_call(unit: MessageUnit) -> bool:
    events = unit.texts[0]
    if unit.name != "tool_calls" or len(events) != 2 or type(events[0]) is not PartStart:
        return False
    delta = events[1]
    return type(delta) is Delta and delta.text.strip(JSON_SPACE) == EMPTY_ARGUMENTS


def _convert_finish_reasons(
    doc: Json, raw: bytes | None, finish_reasons: Mapping[str, str]
) -> tuple[Json, bytes | None]:
    listed = doc.get("choices")
    choices: list[Any] = []
    for choice in listed if type(listed) is list else ():
        reason = choice.get("finish_reason") if type(choice) is dict else None
        finish = finish_reasons.get(reason.lower()) if type(reason) is str else None
        choices.append(choice if finish is None else {**choice, "finish_reason": finish})
    is_same = all(new is old for new, old in zip(choices, listed or (), strict=False))
    return (doc, raw) if is_same else ({**doc, "choices": choices}, None)
