"""Reads events and recorded streams of Responses into frames, and writes frames again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from proxy.dialects.families import RESPONSES
from proxy.dialects.family import ReadOptions, WriteOptions
from proxy.dialects.frames.sequencer import Sequencer
from proxy.types import Call, RequestHead
from proxy.types.events import Delta, Frame, Part
from tests.checked import checked
from tests.doubles import Json

HEAD = RequestHead(dialect="openai", endpoint="responses", route="/v1/responses", request_id="r1")
CALL = Call(head=HEAD, body={"model": "m", "input": "p"}, stream=True)


def read(value: Iterable[bytes | Json], **options: Any) -> list[Frame]:
    """Return the frames of documents, in sequence if guards read them or they cross."""
    read_options = ReadOptions(call=CALL, **options)
    reader = RESPONSES.reader(read_options)
    frames: list[Frame] = []
    for data in value:
        raw = data if isinstance(data, bytes) else orjson.dumps(data)
        frames += reader.read(orjson.loads(raw), raw)
    splits = (read_options.inspect or read_options.is_translated) and not read_options.whole
    checked(frames, split=splits)
    if frames and "ResponseEnd" in kinds(frames[-1:]):
        frames[-1] = frames[-1]._replace(last=True)
    if not splits:
        return frames
    sequencer = Sequencer()
    frames = [out for frame in frames for out in sequencer.feed(frame)]
    return checked([*frames, *sequencer.end()], split=True, sequenced=True)


def without_bytes(frames: Iterable[Frame]) -> list[Frame]:
    """Return frames as guards leave them."""
    return [frame._replace(raw=None) for frame in frames]


def written(frames: Iterable[Frame], call: Call = CALL, *, is_whole: bool = False) -> bytes:
    options = WriteOptions(call=call, whole=is_whole)
    return b"".join(map(RESPONSES.writer(options).feed, frames))


def texts(frames: Iterable[Frame]) -> dict[Part, str]:
    """Return the text of each part."""
    results: dict[Part, str] = {}
    for frame in frames:
        for event in frame.events:
            if isinstance(event, Delta):
                results[event.part] = results.get(event.part, "") + event.text
    return results


def kinds(frames: Iterable[Frame]) -> list[str]:
    """Return the names of all events."""
    return [type(event).__name__ for frame in frames for event in frame.events]
