"""Reads the choices of a document: texts, tool calls and finish reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from proxy.dialects.chat.requests import find_part_texts, move_texts_to_members
from proxy.dialects.chat.tool_calls import (
    CALL_TEXT_MEMBERS,
    ToolCallNumbering,
    add_tool_call_id,
    get_call_type_and_object,
    get_thought_signature,
    serialize_arguments,
)
from proxy.dialects.family import (
    Check,
    ReadOptions,
    Shape,
    allow_null,
    has_shape,
    is_count_tree,
    is_empty,
    is_null_or_number,
    is_text,
    make_word_check,
)
from proxy.dialects.wire.strict_json import MAX_VALUES, as_text, is_null_or_word
from proxy.errors import ResponseTooLarge
from proxy.runtime.frozen import frozen
from proxy.types import Json
from proxy.types.events import (
    Attach,
    Closing,
    Delta,
    Event,
    FamilyName,
    Finish,
    FinishReason,
    Kind,
    Part,
    PartStart,
    Slot,
    ToolCall,
    get_index,
)

CHOICES: Final = "choices"
"""Member of a document with the list of its choices."""
MAX_PARTS: Final = 16_384
"""Maximum number of parts of a stream."""
IDENTITY_MEMBERS: Final = ("id", "object", "created", "model", "system_fingerprint")
"""Members that each chunk of a response repeats."""
PADDING_MEMBER: Final = "obfuscation"
"""Random text by which OpenAI hides the sizes of chunks. Dropped from an inspected stream."""
REASONING_MEMBERS: Final = ("reasoning_content", "reasoning")
"""The names of reasoning. Some servers send the same text under both."""
FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


@frozen
class TextLayout:
    """Location of the texts in a choice.

    Attributes:
        holder: Member of the choice that has the texts; empty if the choice itself has them.
        text_kinds: Kinds of the texts by member, in the order of a chat message.
        whole: Layout of a response that is one document, if different.
    """

    family: FamilyName
    holder: str
    text_kinds: Mapping[str, Kind]
    whole: TextLayout | None = None


_REASONING: Final[dict[str, Kind]] = dict.fromkeys(REASONING_MEMBERS, "reasoning")
_CHAT_TEXTS: Final[dict[str, Kind]] = {**_REASONING, "content": "text", "refusal": "refusal"}
_COMPLETION_TEXTS: Final[dict[str, Kind]] = {**_REASONING, "text": "text", "refusal": "refusal"}
CHAT: Final = TextLayout(
    "chat", "delta", _CHAT_TEXTS, whole=TextLayout("chat", "message", _CHAT_TEXTS)
)
COMPLETIONS: Final = TextLayout("completions", "", _COMPLETION_TEXTS)

SILENT_MEMBERS: Final[Shape] = {
    **dict.fromkeys(
        ("id", "object", "model", "system_fingerprint", "service_tier"), is_null_or_word
    ),
    "created": is_null_or_number,
    "usage": is_count_tree,
    "choices": lambda value: type(value) is list,
}
"""Shapes of the members of a document that guards need not read."""
SILENT_CHOICE_MEMBERS: Final[Mapping[str, Check]] = {
    "index": is_null_or_number,
    "finish_reason": make_word_check(*FINISH_REASONS, "error", "timeout", "eos", "abort", ""),
    "logprobs": lambda value: not value,
}
"""Shapes of the members of a choice that guards need not read."""
SILENT_CALL: Final[Shape] = {
    "id": is_null_or_word,
    "index": is_null_or_number,
    "type": make_word_check(*CALL_TEXT_MEMBERS, ""),
    **{
        kind: allow_null({"name": is_empty, member: allow_null(is_text)})
        for kind, member in CALL_TEXT_MEMBERS.items()
    },
}
"""Shapes of the members of a tool call that guards need not read, without a second name."""
_MAY_BE_EMPTY = frozenset(
    {"annotations", "audio", "content", "function_call", "reasoning", "reasoning_content"}
    | {"refusal", "text", "tool_calls"}
)
"""Members of a message that guards need not read if they are empty."""
_IS_ROLE = make_word_check("assistant", "")


class MessageUnit(NamedTuple):
    """A member of a message, or the tool call at ``position`` in the list of tool calls.

    ``texts`` has the events of each of its texts. ``is_changed``: ``value`` differs from the value
    in the document.
    """

    name: str
    position: int | None
    value: Any
    texts: list[tuple[Event, ...]]
    is_changed: bool = False


MessageUnits = Iterator[MessageUnit]


class Choice(NamedTuple):
    """One choice of a document. ``has_unread_members``: some members have no event."""

    number: int
    value: Json
    units: list[MessageUnit]
    finish: Finish | None
    has_unread_members: bool


class ChoiceReader:
    """Reads the choices of one response.

    ``options.inspect``: find members without an event. ``options.is_translated``: give each tool
    call an id. Raises ``ResponseTooLarge`` for too many parts.
    """

    def __init__(self, layout: TextLayout, options: ReadOptions) -> None:
        self._layout = layout
        self._is_translated = options.is_translated
        self._inspect = options.inspect and not options.is_translated
        self._split = options.inspect or options.is_translated
        self._is_whole = options.whole and not options.stream
        self._shown_as = options.shown_as
        # A whole document has a bound of its own.
        self._max_parts = MAX_VALUES if self._is_whole else MAX_PARTS
        self._parts: dict[tuple[int, object], Part] = {}
        self.part_counts: dict[int, int] = {}  # by choice
        self._numbers: defaultdict[int, ToolCallNumbering] = defaultdict(ToolCallNumbering)
        self.finished: set[int] = set()
        self._homes: dict[tuple[int, Kind], Slot] = {}  # member that had the first text of a kind

    def claim_text_member(self, part: Part, members: Slot) -> bool:
        """Return True if a text is at the same path of a choice as the first text of its part."""
        return self._homes.setdefault((part.choice, part.kind), members) == members

    def read(self, value: Json, position: int, response_id: object) -> Choice:
        number, holder = get_index(value, position), self._layout.holder
        message = value.get(holder) if holder else value
        is_unread = self._inspect and not self._has_event_per_member(value, message, number)
        if number in self.finished:
            is_unread = is_unread or (self._inspect and bool(message))
            return Choice(number, value, [], finish=None, has_unread_members=is_unread)
        units: list[MessageUnit] = []
        if type(message) is dict:
            slot: Slot = ("choices", position, holder) if holder else ("choices", position)
            parts = message.get("content")
            if type(parts) is not list or self._inspect:
                units += self._read_texts(message, number, value, slot)
                if type(parts) is list:
                    units += self._read_content_parts(parts, number, slot)
            else:
                joined = self._read_texts(move_texts_to_members(message), number, value, slot)
                units += [unit._replace(is_changed=True) for unit in joined]
            if "tool_calls" in message or "function_call" in message:
                units += self._read_tool_calls(message, number, slot, response_id)
        finish = self._make_finish_event(value, number)
        return Choice(number, value, units, finish=finish, has_unread_members=is_unread)

    def _read_texts(self, message: Json, number: int, value: Json, slot: Slot) -> MessageUnits:
        for name, kind in self._layout.text_kinds.items():
            text = message.get(name)
            if type(text) is not str or not text or self._repeats_reasoning(name, message, number):
                continue
            part, begin = self._open_part(number, kind, kind)
            events: list[Event] = [*begin, Delta(part, text, (*slot, name))]
            if self._split and kind == "text" and value.get("logprobs"):
                logprobs_slot = (*slot[:2], "logprobs")
                events.append(Attach(part, "logprobs", value["logprobs"], slot=logprobs_slot))
            yield MessageUnit(name, None, text, texts=[tuple(events)])

    def _read_content_parts(self, parts: list[Any], number: int, slot: Slot) -> MessageUnits:
        texts: list[tuple[Event, ...]] = []
        for path, text, kind in find_part_texts(parts):
            part, begin = self._open_part(number, kind, kind)
            texts.append((*begin, Delta(part, text, (*slot, "content", *path))))
        if texts:
            yield MessageUnit("content", None, parts, texts=texts)

    def _read_tool_calls(
        self, message: Json, number: int, slot: Slot, response_id: object
    ) -> MessageUnits:
        calls, old_call = message.get("tool_calls"), message.get("function_call")
        indexes: set[object] = set()  # indexes of the tool calls read so far
        for position, call in enumerate(calls if type(calls) is list else ()):
            if type(call) is dict:
                place = (number, position, (*slot, "tool_calls", position))
                yield self._read_tool_call(call, place, indexes, response_id)
        if type(old_call) is dict:
            fragment = serialize_arguments({"function": old_call})
            is_changed = not self._inspect and fragment["function"] is not old_call
            key = number, "function_call"
            if self._is_translated:
                fragment = add_tool_call_id(fragment, response_id, 0)
            events = self._make_tool_call_events(key, fragment, (*slot, "function_call"))
            yield MessageUnit(key[1], None, old_call, texts=[events], is_changed=is_changed)

    def _read_tool_call(
        self, call: Json, place: tuple[int, int, Slot], indexes: set[object], response_id: object
    ) -> MessageUnit:
        """Read a fragment of a tool call.

        ``place`` is the number of its choice, its position in the list of calls, and its slot.
        """
        number, position, slot = place
        numbered, index = call, position
        if not self._is_whole:
            numbered = self._numbers[number].renumber_fragment(call, position, indexes)
            index = numbered["index"]
        indexes.add(index)
        fragment = serialize_arguments(numbered)
        if self._is_translated and (number, index) not in self._parts:
            fragment = add_tool_call_id(fragment, response_id, index)
        slot = (*slot, get_call_type_and_object(fragment)[0])
        events = self._make_tool_call_events((number, index), fragment, slot)
        is_changed = (numbered if self._inspect else fragment) is not call
        return MessageUnit("tool_calls", position, numbered, texts=[events], is_changed=is_changed)

    def _make_tool_call_events(
        self, key: tuple[int, object], fragment: Json, slot: Slot
    ) -> tuple[Event, ...]:
        kind, inner = get_call_type_and_object(fragment)
        member, name = CALL_TEXT_MEMBERS[kind], as_text(inner.get("name"))
        call = ToolCall(str(fragment.get("id") or ""), name, kind)
        part, events = self._open_part(*key, member, call, (*slot, "name") if name else ())
        signature = get_thought_signature(fragment) if events and self._is_translated else None
        if signature:
            events = (*events, Attach(part, "signature", signature))
        text = as_text(inner.get(member))
        return (*events, Delta(part, text, (*slot, member))) if text else events

    def _repeats_reasoning(self, name: str, message: Json, number: int) -> bool:
        """Return True for reasoning that the message repeats under another name."""
        home = self._homes.get((number, "reasoning"), REASONING_MEMBERS[:1])[-1]
        first = home if home in REASONING_MEMBERS else REASONING_MEMBERS[0]
        return name in REASONING_MEMBERS and name != first and message.get(first) == message[name]

    def _has_event_per_member(self, value: Json, message: Any, number: int) -> bool:
        holder = self._layout.holder
        if holder:
            other_members = {name: member for name, member in value.items() if name != holder}
            if type(message) is not dict:
                return message is None and has_shape(other_members, SILENT_CHOICE_MEMBERS)
        else:
            other_members = {name: value[name] for name in SILENT_CHOICE_MEMBERS if name in value}
        text = message.get("content", message.get("text"))
        if text and type(text) is str:  # log-probabilities belong to the event of the text
            other_members.pop("logprobs", None)
        return has_shape(other_members, SILENT_CHOICE_MEMBERS) and all(
            [self._has_event_or_no_content(name, message, number) for name in message]
        )

    def _has_event_or_no_content(self, name: str, message: Json, number: int) -> bool:
        value = message[name]
        if name in self._layout.text_kinds:
            is_repeated = value and self._repeats_reasoning(name, message, number)
            return (value is None or type(value) is str) and not is_repeated
        if name == "role":
            return _IS_ROLE(value)
        if name == "tool_calls" and type(value) is list:
            return all([has_shape(call, SILENT_CALL) for call in value])
        if name == "function_call" and type(value) is dict:
            return has_shape({"function": value}, SILENT_CALL)
        if not value:
            return name in _MAY_BE_EMPTY
        return not self._layout.holder and name in SILENT_CHOICE_MEMBERS

    def _open_part(
        self, number: int, key: object, kind: Kind, call: ToolCall | None = None, slot: Slot = ()
    ) -> tuple[Part, tuple[Event, ...]]:
        """Return a part and, if it is new, its ``PartStart``."""
        part = self._parts.get((number, key))
        if part is not None:
            return part, ()
        if len(self._parts) >= self._max_parts:
            raise ResponseTooLarge("The upstream sent too many parts.")
        position = self.part_counts.get(number, 0)
        self.part_counts[number] = position + 1
        closing: Closing = "implicit" if call is None else "json"
        part = Part(self._shown_as.get(kind, kind), position, choice=number, closing=closing)
        self._parts[number, key] = part
        return part, (PartStart(part, call, slot),)

    def _make_finish_event(self, value: Json, number: int) -> Finish | None:
        reason = value.get("finish_reason")
        if not reason:  # some servers send ""
            return None
        if len(self.finished) >= self._max_parts:
            raise ResponseTooLarge("The upstream sent too many choices.")
        self.finished.add(number)
        native = str(reason)
        return Finish(number, FINISH_REASONS.get(native, "other"), native)
