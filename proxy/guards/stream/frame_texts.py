"""Finds the texts in the frames of a stream, and replaces them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from proxy.dialects.wire.strict_json import is_null_or_word
from proxy.guards.text import walk
from proxy.guards.text.documents import walk_response_document, walk_response_value
from proxy.guards.text.members import is_in_choice
from proxy.guards.text.replace import map_paths_to_copy, replace_texts
from proxy.guards.text.walk import MemberName, Opaque, Path, Text, WalkItem
from proxy.types import Json
from proxy.types.events import (
    Attach,
    Delta,
    Event,
    Extension,
    Frame,
    Kind,
    Part,
    PartStart,
    ResponseStart,
    Unmapped,
    UsageReport,
    get_index,
)
from proxy.types.events import replace_at_slot as put

KIND_OF: Final[Mapping[Kind, str]] = {
    "text": "content",
    "reasoning": "reasoning",
    "summary": "reasoning",
    "refusal": "refusal",
    "arguments": "arguments",
    "input": "arguments",
    "server_arguments": "arguments",
    "code": "content",
    "audio": "content",
    "item": "content",
    "opaque": "content",
}
"""Kind of text for the ``fields`` of rules, by kind of part."""
JSON_KINDS: Final[frozenset[Kind]] = frozenset({"arguments", "server_arguments"})
"""The kinds of parts whose text is JSON."""
CHAT_FAMILIES: Final = frozenset({"chat", "completions"})
_ARGUMENT_MEMBERS = frozenset({"arguments", "partial_json"})
_UNSPLIT = frozenset({"index", "name", "role", "type", "logprobs"})
_END_MEMBERS = frozenset({"index", "finish_reason"})

TextKey = tuple[int, tuple[object, ...]]
"""Key of a text that several documents continue: the index of a choice, and steps within it."""


def is_json_text(key: Part | TextKey) -> bool:
    """Return True if the text of a key is JSON."""
    return key.kind in JSON_KINDS if isinstance(key, Part) else key[1][-1] in _ARGUMENT_MEMBERS


def get_choice_index(key: Part | TextKey) -> int:
    return key.choice if isinstance(key, Part) else key[0]


class UnfinishedText(NamedTuple):
    """A text of a frame that later frames with the same key may continue."""

    text: Text
    key: Part | TextKey


def list_delta_texts(frame: Frame) -> list[UnfinishedText]:
    texts: list[UnfinishedText] = []
    for index, event in enumerate(frame.events):
        if isinstance(event, Delta):
            path, kind = get_event_value_path(frame, index), KIND_OF[event.part.kind]
            texts.append(UnfinishedText(Text(path, event.text, kind, role="assistant"), event.part))
    return texts


def iter_non_delta_texts(frame: Frame) -> Iterator[WalkItem]:
    """Yield the texts of a frame outside of its deltas."""
    doc, natives = frame.doc, [event for event in frame.events if isinstance(event, Unmapped)]
    is_walked = doc is not None and bool(natives)
    if doc is not None and natives:
        delta_slots: set[Path] = {slot for native in natives for slot in native.repeats}
        delta_slots |= {event.slot for event in frame.events if isinstance(event, Delta)} - {()}
        for item in walk_response_document(doc, frame.family, is_event=True):
            path = item.path if isinstance(item, Text | Opaque) else ()
            # The path of a segment is the path of its arguments and its index.
            is_segment = path and isinstance(path[-1], int) and path[:-1] in delta_slots
            if not (path in delta_slots or is_segment):
                yield item
    for index, event in enumerate(frame.events):
        if isinstance(event, ResponseStart | PartStart | Attach | Extension):
            path = get_event_value_path(frame, index)
            if path == (index,) or not is_walked:
                yield from _iter_event_texts(frame, path, event)
        if isinstance(event, PartStart) and event.call is not None and not is_walked:
            yield from _iter_text_like_ids((index,), id=event.call.id)


def get_event_value_path(frame: Frame, event_index: int) -> Path:
    """Return the path of an event's value in the document of the frame.

    If the document does not have the value, the path starts with ``event_index``.
    """
    event, doc = frame.events[event_index], frame.doc or {}
    if isinstance(event, PartStart | Attach | Delta) and event.slot and frame.doc is not None:
        return event.slot
    if isinstance(event, ResponseStart):
        return _find_start_value_path(doc, event, event_index)
    if isinstance(event, Extension) and doc.get(event.name) is event.value:
        return (event.name,)
    return (event_index,)


def get_text_key(frame: Frame, path: Path) -> TextKey | None:
    """Return the key of a text in a document, None if no other document may continue the text."""
    doc = frame.doc or {}
    if isinstance(path[-1], MemberName) or path[-1] in _UNSPLIT or is_in_event_value(frame, path):
        return None
    if frame.family in CHAT_FAMILIES:
        may_continue = is_in_choice(path) and path[2] not in _END_MEMBERS
        return build_text_key(doc, path) if may_continue else None
    return (0, (doc.get("type"), *_iter_key_parts(doc), *path)) if path[0] == "delta" else None


def get_unknown_event_text_key(frame: Frame, path: Path) -> TextKey | None:
    """Return the key of a text in an event of an unknown type, else None."""
    doc = frame.doc or {}
    if frame.family in CHAT_FAMILIES or isinstance(path[-1], MemberName) or path[-1] in _UNSPLIT:
        return None
    is_unknown = all([type(event) is Unmapped for event in frame.events])
    return (0, (doc.get("type"), *path)) if is_unknown else None


def is_in_event_value(frame: Frame, path: Path) -> bool:
    """Return True if a text is part of the value of an event."""
    for index, event in enumerate(frame.events):
        if isinstance(event, PartStart | Attach | Extension):
            value_path = get_event_value_path(frame, index)
            if path[: len(value_path)] == value_path:
                return True
    return isinstance(path[0], int)


def build_text_key(doc: Json, path: Path) -> TextKey:
    """Return the key of a path in a choice: the index of each item replaces its position.

    The parts of a message share one key.
    """
    value: Any = doc
    steps: list[Any] = []
    for step in path:
        value = value[step]
        steps.append(get_index(value, step) if isinstance(step, int) else step)
    choice, *choice_steps = steps[1:]
    depth = walk.find_joined_parts_depth(tuple(choice_steps))
    return choice if isinstance(choice, int) else -1, tuple(choice_steps[:depth])


def _find_start_value_path(doc: Json, start: ResponseStart, index: int) -> Path:
    for path in ((), ("message",), ("response",)):
        holder = doc.get(path[0]) if path else doc
        if isinstance(holder, dict) and "model" in holder and holder["model"] is start.model:
            return path
    return (index,)


def _iter_text_like_ids(path: Path, **ids: str | None) -> Iterator[Text]:
    """Yield the identifiers to inspect: those with white space or over 128 characters."""
    for name, value in ids.items():
        if value and not is_null_or_word(value):
            yield Text((*path, name), value, "other", role="assistant")


def _iter_event_texts(
    frame: Frame, path: Path, event: ResponseStart | PartStart | Attach | Extension
) -> Iterator[WalkItem]:
    if isinstance(event, ResponseStart):
        yield from _iter_text_like_ids(path, id=event.id, model=event.model)
    elif isinstance(event, PartStart):
        if event.call is not None and event.call.name:
            name_path = (*path, "name") if isinstance(path[-1], int) else path
            yield Text(name_path, event.call.name, "tool", role="assistant")
    elif isinstance(event, Extension):
        kind = "other" if event.choice is None else "content"
        yield from walk_response_value(path, event.value, kind)
    elif event.name == "logprobs":
        delta_text = "".join(delta.text for delta in frame.events if isinstance(delta, Delta))
        for node in walk.iter_joined_unshown_logprobs(path, event.value, delta_text):
            yield Text(node.path, node.value, node.kind, role=node.role)
    else:
        if event.name == "audio":
            yield Opaque(path, "audio")
        yield from walk_response_value(path, event.value, "content")


def _iter_key_parts(doc: Json) -> Iterator[object]:
    """Yield the members that identify the text of a delta among interleaved texts."""
    delta = doc.get("delta")
    for value in (doc, delta if isinstance(delta, dict) else {}):
        for name, member in value.items():
            if isinstance(member, str | int) and (
                name == "index" or name.endswith("_index") or (name == "type" and value is delta)
            ):
                yield member


VALUE_EVENTS = (ResponseStart, PartStart, Delta, Attach, Extension)
_MISSING = object()


def replace_frame_texts(frame: Frame, changes: Mapping[Path, str]) -> Frame:
    """Return a frame with the texts at some paths replaced.

    A changed delta loses its log probabilities, because their tokens spell the text.
    """
    if not changes:
        return frame
    doc = frame.doc
    deltas = [
        event
        for index, event in enumerate(frame.events)
        if isinstance(event, Delta) and get_event_value_path(frame, index) in changes
    ]
    if doc is not None:
        for delta in deltas:
            if delta.slot:
                doc = put(doc, delta.slot, "")  # the arguments may be an object in this document
        in_doc = {
            path: text
            for path, text in changes.items()
            if not isinstance(path[0], int) and _can_set_text(doc, path)
        }
        frame = _rebuild_frame(frame, replace_texts(doc, in_doc), in_doc) if in_doc else frame
    in_events = {path: text for path, text in changes.items() if isinstance(path[0], int)}
    if in_events:
        values: Any = dict(enumerate(map(_get_inspected_value, frame.events)))
        changed: Any = replace_texts(values, in_events)
        events = tuple(
            event if changed[index] == value else _replace_event_value(event, changed[index])
            for (index, value), event in zip(values.items(), frame.events, strict=True)
        )
        frame = frame._replace(events=events, raw=None)
    return remove_attachment(frame, "logprobs") if deltas else frame


def remove_attachment(frame: Frame, name: str) -> Frame:
    """Return a frame without its attached values called ``name``.

    In the document, an empty string replaces a signature, and an empty list or null other values.
    """
    if not any(isinstance(event, Attach) and event.name == name for event in frame.events):
        return frame
    doc, events, is_signature = frame.doc, list[Event](), name == "signature"
    for event in frame.events:
        if not (isinstance(event, Attach) and event.name == name):
            events.append(event)
            continue
        if is_signature:
            events.append(event._replace(value=""))
        if doc is not None and event.slot:
            empty: Any = "" if is_signature else [] if isinstance(event.value, list) else None
            doc = put(doc, event.slot, empty)
    return frame._replace(events=tuple(events), doc=doc, raw=None)


def _rebuild_frame(frame: Frame, doc: Json, changes: Mapping[Path, str]) -> Frame:
    """Return a frame with a changed document, and with events that have its values."""
    is_renamed = any(isinstance(path[-1], MemberName) for path in changes)
    events = list(frame.events)
    for index, event in enumerate(frame.events):
        if isinstance(event, UsageReport):
            events[index] = _update_usage(event, frame.doc or {}, doc)
            continue
        slot = get_event_value_path(frame, index)
        is_valued = isinstance(event, VALUE_EVENTS) and slot != (index,)
        if not is_valued or _get_value_at(frame.doc, slot) is _MISSING:
            continue
        [new_slot] = map_paths_to_copy(frame.doc or {}, doc, [slot]) if is_renamed else [slot]
        value = _get_value_at(doc, new_slot)
        if isinstance(event, Delta):
            value = changes.get(slot, event.text)
        changed: Any = _replace_event_value(event, value)
        is_placed = isinstance(event, PartStart | Attach | Delta)
        events[index] = changed._replace(slot=new_slot) if is_placed else changed
    return frame._replace(events=tuple(events), doc=doc, raw=None)


def _can_set_text(doc: Json, path: Path) -> bool:
    """Return True if a text can be set at a path of a document.

    Masked arguments become a text, even if they were an object, so a path into them is invalid.
    """
    parent = _get_value_at(doc, path[:-1])
    is_in_string = parent is not _MISSING and not isinstance(path[-1], str | MemberName)
    return is_in_string or isinstance(parent, dict | list)


def _get_value_at(value: Any, path: Path) -> Any:
    """Return the value at a path of a document, or ``_MISSING``."""
    for step in path:
        steps: Any = range(len(value)) if isinstance(value, list) else value
        if not isinstance(value, dict | list) or step not in steps:
            return _MISSING
        value = value[step]  # type: ignore[index]
    return value


def _update_usage(report: UsageReport, old_doc: Json, new_doc: Json) -> UsageReport:
    """Return a usage report with the values of a changed document."""
    old, new = _get_usage(old_doc), _get_usage(new_doc)
    values = {
        name: new.get(name) if value is old.get(name) else value
        for name, value in report.native.items()
    }
    return report._replace(native=values)


def _get_usage(doc: Json) -> Json:
    for holder in (doc, doc.get("message"), doc.get("response")):
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            usage: Json = holder["usage"]
            return usage
    return {}


def _get_inspected_value(event: Event) -> Any:
    """Return the value of an event that guards read."""
    match event:
        case ResponseStart(id=id_, model=model):
            return {"id": id_, "model": model}
        case PartStart(call=call):
            return call and {"id": call.id, "name": call.name}
        case Delta(text=value) | Attach(value=value) | Extension(value=value):
            return value
        case _:
            return None


def _replace_event_value(event: Event, value: Any) -> Any:
    match event:
        case ResponseStart(id=id_, model=model):
            return event._replace(id=value.get("id", id_), model=value.get("model", model))
        case PartStart(call=call) if call is not None:
            members = value if isinstance(value, dict) else {"name": value}
            return event._replace(call=call._replace(**members))
        case Delta():
            return event._replace(text=value)
        case Attach() | Extension():
            return event._replace(value=value)
        case _:
            return event
