"""Copies of frames with other texts, in their events and in their documents alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.guards.stream.texts import path_of
from proxy.guards.text.replace import moved, replaced
from proxy.guards.text.walk import MemberName, Path
from proxy.types import Json
from proxy.types.events import Attach, Begin, Delta, Event, Extension, Frame, Start, UsageReport
from proxy.types.events import replaced as put

VALUED = (Start, Begin, Delta, Attach, Extension)


def with_text(frame: Frame, number: int, text: str, *, is_masked: bool) -> Frame:
    """Return a frame with another text of its delta with this number. A masked one has no log
    probabilities, as their tokens spell the text."""
    delta = _delta(frame, number)
    doc, slot, events = frame.doc, delta.slot, frame.events
    if doc is not None and slot:
        doc = put(doc, slot, text)  # arguments may be an object there
        doc = replaced(doc, {slot: text}) if is_masked else doc
    if len(events) == 1:
        events = (Delta(delta.part, text, slot),)
    else:
        events = (*events[:number], Delta(delta.part, text, slot), *events[number + 1 :])
    changed = Frame(
        events,
        family=frame.family,
        doc=doc,
        model_call=frame.model_call,
        size=frame.size,
        last=frame.last,
    )
    return without(changed, "logprobs") if is_masked else changed


def with_changes(frame: Frame, changes: Mapping[Path, str]) -> Frame:
    """Return a frame with other texts at paths that `frame_texts` gave."""
    if not changes:
        return frame
    doc = frame.doc
    in_doc = {
        path: text
        for path, text in changes.items()
        if not isinstance(path[0], int) and _takes(doc, path)
    }
    if doc is not None and in_doc:
        doc = replaced(doc, in_doc)
        frame = _reread(
            frame, doc, is_renamed=any(isinstance(path[-1], MemberName) for path in in_doc)
        )
    alone = {path: text for path, text in changes.items() if isinstance(path[0], int)}
    values: Any = {number: _value(event) for number, event in enumerate(frame.events)}
    for number, value in replaced(values, alone).items() if alone else ():
        frame = _with_event(frame, int(number), value)
    return frame


def without(frame: Frame, name: str) -> Frame:
    """Return a frame without its attached values of a name. Of a signature the document keeps an
    empty string, of log probabilities an empty value."""
    if not any(isinstance(event, Attach) and event.name == name for event in frame.events):
        return frame
    doc, events = frame.doc, list[Event]()
    for event in frame.events:
        if not (isinstance(event, Attach) and event.name == name):
            events.append(event)
            continue
        if name == "signature":
            events.append(event._replace(value=""))
        if doc is not None and event.slot:
            empty: Any = (
                "" if name == "signature" else [] if isinstance(event.value, list) else None
            )
            doc = put(doc, event.slot, empty)
    return frame._replace(events=tuple(events), doc=doc, raw=None)


def without_deltas(frame: Frame) -> Frame | None:
    """Return a frame without its deltas, and what belongs to them. None if nothing else is left."""
    slots: dict[Path, str] = {
        event.slot: "" for event in frame.events if isinstance(event, Delta) and event.slot
    }
    events = tuple(each for each in frame.events if not isinstance(each, Delta | Attach))
    if not events:
        return None
    doc = frame.doc if frame.doc is None else replaced(frame.doc, slots)
    return frame._replace(events=events, doc=doc, raw=None)


def parted(frame: Frame, number: int, text: str) -> tuple[Frame, Frame]:
    """Return a frame with the beginning of its text, and one that is to have the rest. The rest has
    no document if the frame has other events than the text and its values."""
    first = with_text(frame, number, text, is_masked=True)._replace(last=False)
    if is_delta(frame):
        return first, frame
    delta = Delta(_delta(frame, number).part, "")
    rest = Frame((delta,), frame.family, model_call=frame.model_call, last=frame.last)
    return first, rest


def is_delta(frame: Frame) -> bool:
    """Return True if a frame has a text and its values alone."""
    return all(isinstance(event, Delta | Attach) for event in frame.events)


def _reread(frame: Frame, doc: Json, *, is_renamed: bool) -> Frame:
    """Return a frame with another document, whose values its events have too."""
    events = list(frame.events)
    for number, event in enumerate(frame.events):
        if isinstance(event, UsageReport):
            events[number] = _with_usage(event, frame.doc or {}, doc)
            continue
        slot = event.slot if isinstance(event, Delta) else path_of(frame, number)
        is_valued = isinstance(event, VALUED) and slot != (number,)
        if not is_valued or not _has(frame.doc, slot):
            continue
        [place] = moved(frame.doc or {}, doc, [slot]) if is_renamed else [slot]
        value: Any = doc
        for step in place:
            value = value[step]
        changed: Any = event if isinstance(event, Delta) else _with_value(event, value)
        is_placed = isinstance(event, Begin | Attach | Delta)
        events[number] = changed._replace(slot=place) if is_placed else changed
    return frame._replace(events=tuple(events), doc=doc, raw=None)


def _has(value: Any, path: Path) -> bool:
    """Return True if a document has a value at a path."""
    for step in path:
        steps: Any = range(len(value)) if isinstance(value, list) else value
        if not isinstance(value, dict | list) or step not in steps:
            return False
        value = value[step]  # type: ignore[index]
    return True


def _takes(doc: Json | None, path: Path) -> bool:
    """Return True if a document takes a text at a path. Arguments that were an object are a text
    once they are masked, which has no members."""
    if not _has(doc, path[:-1]):
        return False
    above: Any = doc
    for step in path[:-1]:
        above = above[step]
    return isinstance(above, dict | list) or not isinstance(path[-1], str | MemberName)


def _with_usage(report: UsageReport, before: Json, after: Json) -> UsageReport:
    """Return a report with the values that a changed document has."""
    old, new = _usage_of(before), _usage_of(after)
    values = {
        name: new.get(name) if value is old.get(name) else value
        for name, value in report.native.items()
    }
    return report._replace(native=values)


def _usage_of(doc: Json) -> Json:
    for holder in (doc, doc.get("message"), doc.get("response")):
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            usage: Json = holder["usage"]
            return usage
    return {}


def _delta(frame: Frame, number: int) -> Delta:
    delta = frame.events[number]
    if not isinstance(delta, Delta):
        raise TypeError(type(delta))
    return delta


def _value(event: Event) -> Any:
    """Return the value of an event that guards read."""
    match event:
        case Start(id=id_, model=model):
            return {"id": id_, "model": model}
        case Begin(call=call):
            return call and {"id": call.id, "name": call.name}
        case Delta(text=text):
            return text
        case Attach(value=value) | Extension(value=value):
            return value
        case _:
            return None


def _with_event(frame: Frame, number: int, value: Any) -> Frame:
    event = frame.events[number]
    if value == _value(event):
        return frame
    if isinstance(event, Delta):
        return with_text(frame, number, value, is_masked=False)
    events = (*frame.events[:number], _with_value(event, value), *frame.events[number + 1 :])
    return frame._replace(events=events, raw=None)


def _with_value(event: Event, value: Any) -> Any:
    match event:
        case Start(id=id_, model=model):
            return event._replace(id=value.get("id", id_), model=value.get("model", model))
        case Begin(call=call) if call is not None:
            named = value if isinstance(value, dict) else {"name": value}
            return event._replace(call=call._replace(**named))
        case Attach() | Extension():
            return event._replace(value=value)
        case _:
            return event
