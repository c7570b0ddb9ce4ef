"""No string of an upstream event passes an acting guard, except in members declared silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from proxy.guards.text.members import IGNORED_RESPONSE_MEMBERS
from tests.golden.events import Event, Path, events, object_paths, string_paths, value_at
from tests.golden.recording import NAMES, Recording, read
from tests.golden.replay import MARKER, Replay, clients

pytestmark = pytest.mark.asyncio(loop_scope="module")
ID_OF_ITEM = "item_id"
"""Known exception: events repeat the silent ``id`` of their item under this name."""
SILENT = {name for names in IGNORED_RESPONSE_MEMBERS.values() for name in names} | {ID_OF_ITEM}
STRUCTURE = {"type", "object", "role", "status", "finish_reason", "stop_reason", "data"}
STRUCTURE |= {"id", "item_id", "call_id", "tool_use_id", "container_id"}
"""Members without which a stream cannot be read: not marked together with all others."""


@dataclass(frozen=True)
class MarkedStream:
    """A recorded stream with a marker in one place. ``is_name``: the marker is the whole value,
    which may be a name or an id; otherwise it is a word within a text, or the name of a member."""

    slot: str
    is_name: bool
    pieces: Sequence[bytes]


def _mark_each_place(
    recording: Recording, known_names: set[tuple[str, str, bool]]
) -> Iterator[MarkedStream]:
    """Yield the stream with each string marked that no other recording of its family has, and with
    a member added to each such object."""
    parsed = events(recording.upstream)
    for index, event in enumerate(parsed):
        for path, is_name, change in _changes(event):
            case = recording.family, event.slot(path), is_name
            if case not in known_names:
                known_names.add(case)
                pieces = [item.raw for item in parsed]
                pieces[index] = event.changed(path, change).raw
                yield MarkedStream(event.slot(path), is_name, pieces)


def _changes(event: Event) -> Iterator[tuple[Path, bool, Callable[[Any], Any]]]:
    """Yield the path of each string and object, and what marks it."""
    for path in string_paths(event.document):
        yield path, False, lambda text: f"{text} {MARKER} "
        value = value_at(event.document, path)
        if value.split() == [value]:
            yield path, True, lambda _: MARKER
    for path in object_paths(event.document):
        yield path, False, lambda value: {**value, MARKER: 1}


def all_marked(recording: Recording) -> list[bytes]:
    """Return the stream with a numbered marker in each string that is not structure."""
    pieces, number = [], 0
    for event in events(recording.upstream):
        marked = event
        for path in string_paths(event.document):
            if not STRUCTURE.intersection(path[-1:]):
                number += 1
                marked = marked.changed(path, lambda text, mark=number: f"{text} {MARKER}{mark} ")  # type: ignore[misc]
        pieces.append(marked.raw)
    return pieces


def escaped(body: bytes) -> list[tuple[Event, Path]]:
    """Return where a client finds the marker: a string, or an object with such a member."""
    places: list[tuple[Event, Path]] = []
    for event in events(body) if MARKER.encode() in body else ():
        assert event.document is not None or MARKER.encode() not in event.raw
        paths = [*string_paths(event.document), *object_paths(event.document)]
        values = [(path, value_at(event.document, path)) for path in paths]
        places += [(event, path) for path, value in values if MARKER in value]
    return places


@cache
def marked_streams() -> dict[str, list[MarkedStream]]:
    """Return the marked streams by the name of the recording."""
    known_names: set[tuple[str, str, bool]] = set()
    return {name: [*_mark_each_place(read(name), known_names)] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("guard", ["masking", "blocking"])
async def test_marker_in_one_place_is_inspected(name: str, guard: str, replay: Replay) -> None:
    recording = read(name)
    cases = [(marked, client) for marked in marked_streams()[name] for client in clients(recording)]

    calls = [(f"{client} {guard}", marked.pieces) for marked, client in cases]
    outputs = await replay.sent(recording, calls)

    for (marked, client), output in zip(cases, outputs, strict=True):
        for event, path in escaped(output.body):
            case = f"{marked.slot} -> {client}: {event.slot(path)}"
            assert marked.is_name, case
            assert SILENT.intersection(path), case


@pytest.mark.parametrize("name", NAMES)
async def test_markers_in_all_strings_are_masked(name: str, replay: Replay) -> None:
    recording = read(name)
    pieces = all_marked(recording)

    labels = [f"{client} masking" for client in clients(recording)]
    outputs = await replay.sent(recording, [(label, pieces) for label in labels])

    for label, output in zip(labels, outputs, strict=True):
        assert [event.slot(path) for event, path in escaped(output.body)] == [], label
