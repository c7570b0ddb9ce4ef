"""Output items of a Responses stream: their open texts, and numbers that an upstream omits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import proxy

from proxy.dialects.family import ReadOptions
from proxy.dialects.responses import schema
from proxy.dialects.responses.schema import TextType
from proxy.dialects.wire.strict_json import as_object, as_text, get_int
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.types import Json
from proxy.types.events import TOOL_CALL_KINDS, Event, Part, PartEnd, PartStart, ToolCall

MAX_ITEMS = 4096
"""Maximum number of items in a stream, and of texts in the open items."""


@dataclass(slots=True, eq=False)
class OpenText:
    """A text of an item.

    ``has_delta``: at least one delta had text. ``beginning`` is the text in the event that began
    the part or item, until the first delta.
    """

    part: Part
    type: TextType
    has_delta: bool = False
    has_ended: bool = False
    beginning: str = field(default="", repr=False)

    def prepend_unrepeated_beginning(self, delta: str) -> str:
        """Return a delta preceded by the beginning, unless the delta repeats the beginning."""
        text, self.beginning = self.beginning, ""
        is_repeated = text.startswith(delta) or delta.startswith(text)
        return delta if is_repeated else text + delta


class OpenItem:
    """An open item with its texts by kind and index. ``other_parts`` are of unknown text types."""

    __slots__ = ("_items", "other_parts", "part", "texts")

    def __init__(self, part: Part, items: OpenItems) -> None:
        self.part = part
        self.texts: dict[tuple[str, int], OpenText] = {}
        self.other_parts: dict[object, Part] = {}
        self._items: OpenItems = proxy(items)  # avoids a reference cycle

    def open_text(self, text_type: TextType, index: int) -> OpenText:
        """Return the text at an index.

        Begins it if it is new. If it has ended, begins a part that continues it.
        """
        kind = text_type.kind
        text = self.texts.get((kind, index))
        if text is None:
            part = self.part
            if text_type.part_type or part.kind != kind:
                part = self._items.begin_part(Part(kind, index, parent=part))
            text = self.texts[kind, index] = OpenText(part, text_type)
        elif text.has_ended:
            part = Part(kind, index, parent=self.part, continues=text.part)
            text.part = self._items.begin_part(part)
            text.has_ended = False
        return text

    def end_text(self, text: OpenText) -> None:
        if not text.has_ended and text.part is not self.part:
            text.has_ended = True
            self._items.events.append(PartEnd(text.part))


class OpenItems:
    """The items of a stream. Appends events that begin and end parts to ``events``.

    Too many items raise ``ResponseTooLarge``. In an inspected or translated stream, an item that
    begins twice raises ``UpstreamInvalid``. A translated stream omits items of unknown types.
    """

    def __init__(self, events: list[Event], options: ReadOptions) -> None:
        self.events = events
        self.has_calls = False
        self._is_strict = options.inspect or options.is_translated
        self._is_translated = options.is_translated
        self._shown_as = options.shown_as
        self._items: dict[int, OpenItem | None] = {}  # None: the item has ended
        self._part_count = 0

    def get_open_item(self, index: Any) -> OpenItem | None:
        return self._items.get(index) if type(index) is int else None

    def has_item_ended(self, index: int) -> bool:
        return index in self._items and self._items[index] is None

    def open_item_for_text(self, index: int, text_type: TextType) -> OpenItem | None:
        """Return the item of a text. Begin the item if no event has.

        Returns None if the item has ended. For a client of another API family, also returns None
        if an item of this type cannot have the text, or would be a tool call without a name.
        """
        item = self._items.get(index)
        if item is None:
            is_unnamed_call = self._is_translated and not text_type.part_type
            if index in self._items or is_unnamed_call:
                return None
            return self.begin_item(index, {"type": text_type.item_type})
        kind = item.part.kind
        fits = kind != "opaque" if text_type.part_type else kind == text_type.kind
        return item if fits or not self._is_translated else None

    def begin_item(self, index: int, item: Json, *, is_added: bool = False) -> OpenItem:
        """Begin an item. ``is_added``: the document of the frame announces the item."""
        if is_added and index in self._items:
            if self._is_strict:
                raise UpstreamInvalid(f"The upstream began the output item {index} twice.")
            if (replaced := self._items[index]) is not None:
                self.end_item(index, replaced)
        if len(self._items) >= MAX_ITEMS:
            raise ResponseTooLarge("The upstream sent too many output items.")
        event = make_part_start_event(item, index)
        open_item = self._items[index] = OpenItem(event.part, self)
        if event.call is not None:
            self.has_calls = True
            slot = ("item", "name") if is_added and isinstance(item.get("name"), str) else ()
            self.events.append(event._replace(slot=slot))
        elif not (self._is_translated and event.part.kind == "opaque"):
            self.events.append(event)
        return open_item

    def begin_part(self, part: Part) -> Part:
        """Begin a part of the kind that clients show, and return it."""
        self._part_count += 1
        if self._part_count > MAX_ITEMS:
            raise ResponseTooLarge("The upstream sent too many parts of output items.")
        part.kind = self._shown_as.get(part.kind, part.kind)
        self.events.append(PartStart(part))
        return part

    def end_item(self, index: int, item: OpenItem) -> None:
        for text in item.texts.values():
            item.end_text(text)
        self.events += [PartEnd(part) for part in item.other_parts.values()]
        if not (self._is_translated and item.part.kind == "opaque"):
            self.events.append(PartEnd(item.part))
        self._part_count -= len(item.texts) + len(item.other_parts)
        self._items[index] = None

    def end_all_items(self) -> None:
        for index, item in [*self._items.items()]:
            if item is not None:
                self.end_item(index, item)


def make_part_start_event(item: Json, index: int) -> PartStart:
    kind = schema.ITEM_KINDS.get(as_text(item.get("type")), "opaque")
    part = Part(kind, index, id=as_text(item.get("id")))
    if kind not in TOOL_CALL_KINDS:
        return PartStart(part)
    call = ToolCall(
        id=as_text(item.get("call_id")),
        name=as_text(item.get("name")),
        type="custom" if kind == "input" else "function",
    )
    return PartStart(part, call)


# Numbers that an upstream omits, as llama.cpp's server does

MAX_NUMBERED_ITEMS = 1024
MAX_IDS = 2 * MAX_NUMBERED_ITEMS
MAX_ID_LENGTH = 512
MAX_NUMBER = 2**53
"""Above it, JSON parsers round integers."""
_TEXT_EVENTS: Mapping[str, TextType] = {**schema.TEXT_BY_DELTA, **schema.TEXT_BY_DONE}
_INDEX: Mapping[str, str] = {
    schema.ANNOTATION_ADDED: "content_index",
    **schema.PART_INDEX,
    **{kind: text.index_member for kind, text in _TEXT_EVENTS.items() if text.index_member},
}
"""The member with the index of a part, by event type."""
_ITEM_EVENTS = {schema.ITEM_ADDED, schema.ITEM_DONE} | _TEXT_EVENTS.keys() | _INDEX.keys()
_ITEM_TYPES: Mapping[str, str] = {
    schema.ANNOTATION_ADDED: "message",
    **{kind: text.item_type for kind, text in _TEXT_EVENTS.items()},
}


class _NumberedItem:
    """An item, with the ids of the event that began it.

    ``is_claimed``: another event had one of these ids. ``has_alias``: an event with another id was
    attributed to the item. ``parts`` has the index of the current part by index member, and the
    events that have ended it.
    """

    __slots__ = ("has_alias", "ids", "index", "is_claimed", "parts", "type")

    def __init__(self, index: int, item_type: str, ids: list[str]) -> None:
        self.index = index
        self.type = item_type
        self.ids = ids
        self.is_claimed = self.has_alias = False
        self.parts: dict[str, tuple[int, frozenset[str]]] = {}

    def can_be(self, item_type: str) -> bool:
        return item_type.startswith(self.type) or self.type.startswith(item_type)

    def assign_part_index(self, index_member: str, kind: str, index: int | None) -> int:
        """Return the index of the part of an event.

        A part begins with its own event, with a delta after the end of the part before it, or with
        an event that ends the same part twice.
        """
        current, ended = self.parts.get(index_member, (-1, frozenset()))
        if index is None:
            follows = bool(ended) if kind in schema.TEXT_BY_DELTA else kind in ended
            if current < 0 or kind.endswith("part.added") or follows:
                current, ended = _increment_number(current), frozenset()
        elif index != current:
            current, ended = index, frozenset()
        self.parts[index_member] = current, ended | {kind} if kind.endswith(".done") else ended
        return current


class EventNumbering:
    """Adds missing sequence numbers and indexes to the events of one stream."""

    def __init__(self) -> None:
        self.sequence = -1  # number of the previous event
        self._next_index = 0
        self._items: dict[int, _NumberedItem] = {}
        self._open: dict[int, _NumberedItem] = {}
        self._by_id: dict[str, _NumberedItem] = {}

    def add_missing_numbers(self, event: Json) -> Json | None:
        """Return an event with all numbers, None if it has them already.

        Raises ``UpstreamInvalid`` if an index is missing and the stream has too many items.
        """
        kind, sequence = event.get("type"), get_int(event, schema.SEQUENCE_NUMBER)
        if not isinstance(kind, str) or not kind.isprintable():
            return None
        missing: dict[str, int] = {}
        if kind in _ITEM_EVENTS or isinstance(event.get(schema.ITEM_ID), str):
            index = get_int(event, schema.OUTPUT_INDEX)
            item = self._find_or_begin_item(kind, event, index)
            if kind == schema.ITEM_DONE:
                self._open.pop(item.index, None)
            if index is None:
                missing[schema.OUTPUT_INDEX] = item.index
            if (index_member := _INDEX.get(kind)) is not None:
                part_index = get_int(event, index_member)
                current = item.assign_part_index(index_member, kind, part_index)
                if part_index is None:
                    missing[index_member] = current
        self.sequence = _increment_number(self.sequence) if sequence is None else sequence
        if sequence is None:
            missing[schema.SEQUENCE_NUMBER] = self.sequence
        return {**event, **missing} if missing else None

    def _find_or_begin_item(self, kind: str, event: Json, index: int | None) -> _NumberedItem:
        ids, item_type = _collect_item_ids(event), _find_item_type(kind, event)
        item = None
        if index is not None:
            item = self._items.get(index)
        elif len(self._items) >= MAX_NUMBERED_ITEMS:
            raise UpstreamInvalid("The upstream sent too many items without output_index.")
        elif kind != schema.ITEM_ADDED:
            item = self._find_by_id(ids, item_type) or self._guess_open_item(ids, item_type)
        if item is None:
            item = self._begin_item(self._next_index if index is None else index, item_type, ids)
        elif kind == schema.ITEM_ADDED:
            item.ids = ids
        for item_id in ids:
            item.is_claimed |= item_id in item.ids and kind != schema.ITEM_ADDED
            item.has_alias |= item_id not in item.ids
            if item_id in self._by_id or len(self._by_id) < MAX_IDS:
                self._by_id[item_id] = item
        return item

    def _begin_item(self, index: int, item_type: str, ids: list[str]) -> _NumberedItem:
        item = _NumberedItem(index, item_type, ids)
        self._next_index = max(self._next_index, _increment_number(index))
        if len(self._items) < MAX_NUMBERED_ITEMS:
            self._items[index] = self._open[index] = item
        return item

    def _find_by_id(self, ids: Iterable[str], item_type: str) -> _NumberedItem | None:
        """Return the item with an id. Among several with one id, prefer one of the given type."""
        for item_id in ids:
            item = self._by_id.get(item_id)
            if item is not None and not item.can_be(item_type):
                others = (other for other in self._open.values() if item_id in other.ids)
                item = next((other for other in others if other.can_be(item_type)), item)
            if item is not None:
                return item
        return None

    def _guess_open_item(self, ids: list[str], item_type: str) -> _NumberedItem | None:
        """Return the item of an event without a known id.

        An event without ids belongs to the last open item of its type. An event with an unknown id
        belongs to the first one without an alias, because some servers use one id for an item and
        another for its events.
        """
        items = [item for item in self._open.values() if item.can_be(item_type)]
        if ids:
            items = [item for item in items if not item.is_claimed]
        last_item = items[-1] if items else None
        if not ids:
            return last_item
        return next((item for item in items if not item.has_alias), last_item)


class ItemIdMap:
    """Keeps one item id per text. Clients distinguish texts by item id or by index."""

    def __init__(self) -> None:
        self._by_index: dict[tuple[str, int], str] = {}
        self._indexes: dict[tuple[str, str], int] = {}

    def keep_first_id(self, event: Json) -> Json:
        """Return an event of a text with the first id seen for texts of its kind and index.

        If texts of another index use that id, the index is appended.
        """
        text_type = _TEXT_EVENTS.get(as_text(event.get("type")))
        if text_type is None:
            return event
        id_, index = event.get(schema.ITEM_ID), event[schema.OUTPUT_INDEX]
        key = text_type.kind, index
        if isinstance(id_, str) and key not in self._by_index and len(self._by_index) < MAX_ITEMS:
            owner = self._indexes.setdefault((text_type.kind, id_), index)
            self._by_index[key] = id_ if owner == index else f"{id_}_{index}"
        known = self._by_index.get(key, id_)
        return event if known == id_ else {**event, schema.ITEM_ID: known}


def _increment_number(number: int) -> int:
    return min(number, MAX_NUMBER) + 1


def _collect_item_ids(event: Json) -> list[str]:
    """Return the ids of the item of an event. Some servers use the id of a call for its item."""
    item = as_object(event.get("item"))
    ids = [event.get(schema.ITEM_ID), item.get("id")]
    if as_text(item.get("type")) in schema.TEXT_BY_CALL:
        ids.append(item.get("call_id"))
    return [text for text in ids if isinstance(text, str) and 0 < len(text) <= MAX_ID_LENGTH]


def _find_item_type(kind: str, event: Json) -> str:
    """Return the type of an event's item, or a prefix of the type. It may be unknown."""
    if kind in _ITEM_TYPES:
        return _ITEM_TYPES[kind]
    if kind in (schema.ITEM_ADDED, schema.ITEM_DONE):
        return as_text(as_object(event.get("item")).get("type"))
    if kind in _INDEX:
        text = schema.TEXT_BY_PART.get(as_text(as_object(event.get("part")).get("type")))
        return "" if text is None else text.item_type
    return kind.split(".")[1] if "." in kind else ""
