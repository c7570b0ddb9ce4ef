"""No string of an upstream event passes a masking guard, except in members declared silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from proxy.guardrails.text.frame import NAMES
from tests.golden.events import Event, Path, events, string_paths, value_at
from tests.golden.recording import Recording, recordings
from tests.golden.replay import Replay, clients

pytestmark = pytest.mark.asyncio(loop_scope="module")
MARKER = "zebra"
ID_OF_ITEM = "item_id"
"""Known exception: events repeat the silent ``id`` of their item under this name."""
SILENT = NAMES | {ID_OF_ITEM}
STRUCTURE = frozenset(
    {"type", "object", "role", "status", "finish_reason", "stop_reason", "id", "item_id", "call_id"}
    | {"tool_use_id", "container_id", "data"}
)
"""Members without which a stream cannot be read: not marked together with all others."""


@dataclass(frozen=True)
class Marked:
    """A recorded stream with a marker in one place. ``is_name``: the marker is the whole value,
    which may be a name or an id; otherwise it is a word within a text."""

    slot: str
    is_name: bool
    pieces: Sequence[bytes]


def _marked(recording: Recording, known: set[tuple[str, str]]) -> Iterator[Marked]:
    """Yield the stream with each string marked that no other recording of its family has."""
    parsed = events(recording.upstream)
    for at, event in enumerate(parsed):
        for path in string_paths(event.document):
            slot = recording.family, event.slot(path)
            if slot in known:
                continue
            known.add(slot)
            for is_name, change in _changes(value_at(event.document, path)):
                pieces = [each.raw for each in parsed]
                pieces[at] = event.changed(path, change).raw
                yield Marked(slot[1], is_name, pieces)


def _changes(value: str) -> list[tuple[bool, Callable[[str], str]]]:
    as_text: tuple[bool, Callable[[str], str]] = (False, lambda text: f"{text} {MARKER} ")
    return [as_text, (True, lambda _: MARKER)] if value.split() == [value] else [as_text]


def _all_marked(recording: Recording) -> list[bytes]:
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


def _escaped(body: bytes) -> list[tuple[Event, Path]]:
    """Return where a client finds the marker."""
    if MARKER.encode() not in body:
        return []
    parsed = events(body)
    assert MARKER.encode() not in b"".join(each.raw for each in parsed if each.document is None)
    paths = ((event, path) for event in parsed for path in string_paths(event.document))
    return [place for place in paths if MARKER in value_at(place[0].document, place[1])]


def _table() -> dict[str, tuple[Recording, list[Marked]]]:
    known: set[tuple[str, str]] = set()
    return {each.name: (each, [*_marked(each, known)]) for each in recordings()}


TABLE = _table()


@pytest.mark.parametrize("name", [name for name, (_, marked) in TABLE.items() if marked])
async def test_marker_in_one_string_is_masked(name: str, replay: Replay) -> None:
    recording, table = TABLE[name]
    cases = [(each, client) for each in table for client in clients(recording)]

    calls = [(f"{client} marked", each.pieces) for each, client in cases]
    outputs = await replay.sent(recording, calls)

    for (each, client), output in zip(cases, outputs, strict=True):
        for event, path in _escaped(output.body):
            case = f"{each.slot} -> {client}: {event.slot(path)}"
            assert each.is_name, case
            assert SILENT.intersection(path), case


@pytest.mark.parametrize("name", TABLE)
async def test_markers_in_all_strings_are_masked(name: str, replay: Replay) -> None:
    recording, _ = TABLE[name]
    pieces = _all_marked(recording)

    labels = [f"{client} marked" for client in clients(recording)]
    outputs = await replay.sent(recording, [(label, pieces) for label in labels])

    for label, output in zip(labels, outputs, strict=True):
        assert [event.slot(path) for event, path in _escaped(output.body)] == [], label
