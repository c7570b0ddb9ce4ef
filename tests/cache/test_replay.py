"""Recorded streams, cached and replayed, for a client of each family as a stream and as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from proxy.cache.cached_answer import AnswerMetadata, CachedAnswer, dump, inflate, parse
from proxy.cache.frame_recorder import FrameRecorder, recorder_of
from proxy.dialects.families import FAMILIES
from proxy.dialects.family import ReadOptions
from proxy.types import CacheRule, Head
from proxy.types.events import Delta, FamilyName, Frame, Kind, Part
from proxy.usage import Tokens
from tests.golden.pipeline import PAIRS, Pipeline, call_of, documents_of, written
from tests.golden.recording import read
from tests.golden.replay import MODEL
from tests.golden.texts import texts_of

KEY = b"k" * 32
RULE = CacheRule(ttl=60, tool_calls=True)
ROOM = RULE.max_bytes
NOT_CACHED = {"chat-filters", "chat-no-finish", "messages-refusal"}
UNTYPED = {"chat-late-text", "chat-two-choices", "completions-two-choices"}
"""Streams with texts that only a document has, which no event represents in pass mode."""


def is_shown(name: str, client: str) -> bool:
    """Return True if a client gets the recorded stream, and not that of a fallback."""
    call = read(name).outputs[f"{client} bare"].call
    return bool(call["outcome"] == "success" and call["models"] == [MODEL])


SHOWN = [pair for pair in PAIRS if is_shown(*pair)]


def shown(name: str, client: FamilyName) -> tuple[FamilyName, list[Frame]]:
    """Return the family of an upstream, and the frames that a client gets."""
    recording = read(name)
    pipeline = Pipeline(recording.family, client)
    return recording.family, pipeline.frames(documents_of([recording.upstream]))


def stored(client: str, frames: Iterable[Frame], *, stream: bool = True) -> bytes | None:
    """Return what the cache stores of an answer to a client."""
    recorder = recorder_of(Head(stream, frames=True), call_of(client, stream=stream), RULE, 1)
    assert isinstance(recorder, FrameRecorder)
    for frame in frames:
        recorder.feed(frame)
    if not recorder.whole:
        return None
    about = AnswerMetadata(1.0, stream, "openai", "m", Tokens(), recorder.family)
    return dump(KEY, about, recorder.lines)


def replayed(client: str, value: bytes, *, stream: bool = True) -> CachedAnswer:
    text = inflate(KEY, value, ROOM)
    assert text is not None
    answer = parse(text, call_of(client, stream=stream))
    assert answer is not None
    return answer


def kinds_of(frames: Iterable[Frame]) -> set[tuple[int, Kind, str]]:
    """Return the texts of frames with their choices and kinds."""
    texts: dict[Part, str] = {}
    for frame in frames:
        for event in frame.events:
            if type(event) is Delta:
                texts[event.part] = texts.get(event.part, "") + event.text
    return {(part.choice, part.kind, text) for part, text in texts.items()}


@pytest.mark.parametrize(("name", "client"), SHOWN)
def test_a_replayed_stream_has_the_texts_that_were_shown(name: str, client: FamilyName) -> None:
    family, frames = shown(name, client)
    value = stored(client, frames)
    assert (value is None) is (name in NOT_CACHED)
    if value is None:
        return

    again = written(client, replayed(client, value).frames)

    sent = written(client, frames)
    assert texts_of(client, again) == texts_of(client, sent)
    if family == client:
        assert again == sent


@pytest.mark.parametrize(("name", "client"), SHOWN)
def test_a_stream_is_replayed_as_a_whole(name: str, client: FamilyName) -> None:
    _, frames = shown(name, client)
    value = stored(client, frames)
    if value is None or name in UNTYPED:
        return

    whole = written(client, replayed(client, value, stream=False).frames, stream=False)

    options = ReadOptions(call_of(client, stream=False), whole=True)
    frames_of_whole = FAMILIES[client].reader(options).read(orjson.loads(whole), whole)
    assert kinds_of(frames_of_whole) == kinds_of(frames)


@pytest.mark.parametrize("client", sorted({client for _, client in SHOWN}))
def test_a_whole_answer_is_replayed_byte_for_byte_and_as_a_stream(client: FamilyName) -> None:
    _, frames = shown(f"{client}-text", client)
    raw = written(client, frames, stream=False)
    options = ReadOptions(call_of(client, stream=False), whole=True)
    [frame] = FAMILIES[client].reader(options).read(orjson.loads(raw), raw)
    value = stored(client, [frame._replace(last=True)], stream=False)
    assert value is not None

    again = replayed(client, value, stream=False).frames
    streamed = replayed(client, value).frames

    assert written(client, again, stream=False) == raw
    assert kinds_of(streamed) == kinds_of(frames)
    assert texts_of(client, written(client, streamed))


@pytest.mark.parametrize("family", ["", "gemini"])
def test_an_entry_of_an_unknown_family_is_a_miss(family: Any) -> None:
    about = AnswerMetadata(1.0, True, "openai", "m", Tokens(), family)
    text = inflate(KEY, dump(KEY, about, [b"{}"]), ROOM)

    assert text is not None
    assert parse(text, call_of("chat")) is None
