"""Whole answers as frames: their texts, and their events after an edit."""

from __future__ import annotations

from dataclasses import replace

from proxy.dialects.families import FAMILIES, client_family, crosses
from proxy.dialects.family import ReadOptions
from proxy.guards.stream.placeholders import Masks
from proxy.guards.stream.texts import KIND_OF
from proxy.guards.text.native import native_walk
from proxy.guards.text.text_walker import collect_texts
from proxy.guards.text.walk import Path, Texts
from proxy.types import Call, Json
from proxy.types.events import SHOWN, Delta, Fault, Frame, Stop


def document_of(frame: Frame) -> Json | None:
    """Return the document of a whole answer, None for that of a failed model call. Raises
    ``ValueError`` for any other answer without a document: no guard would read it."""
    if frame.doc is None and any(not isinstance(event, Fault | Stop) for event in frame.events):
        raise ValueError(f"A whole answer of the family {frame.family!r} has no document.")
    return frame.doc


def texts_of(frame: Frame) -> Texts:
    """Return the texts of a whole answer."""
    return collect_texts(native_walk(document_of(frame) or {}, frame.family, cut=False))


def shown_texts(read: Texts, frame: Frame) -> Texts:
    """Return the texts of a whole answer. Those of one kind are a run: people read them in
    sequence, and the writers of other families join them, whatever items or blocks they are in."""
    runs: dict[Path, tuple[int, str]] = {
        event.slot: (event.part.choice, KIND_OF[event.part.kind])
        for event in frame.events
        if isinstance(event, Delta) and event.part.kind in SHOWN
    }
    if len(runs) == len({*runs.values()}):  # there may be many texts
        return read
    texts = [
        text._replace(run=runs[text.path]) if text.path in runs else text for text in read.texts
    ]
    return replace(read, texts=tuple(texts))


def with_document(frame: Frame, doc: Json, call: Call) -> Frame:
    """Return the frame of a whole answer with another document, and with its events. A text that
    has changed has no signature."""
    doc = _unsigned(frame.doc or {}, doc) if frame.family == "messages" else doc
    options = ReadOptions(
        call=replace(call, stream=False),
        whole=True,
        inspect=True,
        crossing=crosses(client_family(call), frame.family),
        model_call=frame.model_call,
    )
    [read] = FAMILIES[frame.family].reader(options).read(doc, b"")
    return frame._replace(events=read.events, doc=read.doc, raw=None)


def with_values(frame: Frame, masks: Masks, call: Call) -> Frame:
    """Return the frame of a whole answer with the values of its placeholders."""
    before = document_of(frame)
    if before is None:
        return frame
    doc = masks.unmasked(before, texts_of(frame))
    return frame if doc is before else with_document(frame, doc, call)


def _unsigned(before: Json, after: Json) -> Json:
    pairs = zip(before["content"], after["content"], strict=True)
    content = [
        {**new, "signature": ""}
        if new != old and isinstance(new, dict) and "signature" in new
        else new
        for old, new in pairs
    ]
    return {**after, "content": content}
