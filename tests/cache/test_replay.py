"""Recorded streams, cached and replayed, for a client of each family as a stream and as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from proxy.cache.cached_answer import AnswerMetadata, CachedAnswer, dump, inflate, parse
from proxy.cache.recorder import open_recorder
from proxy.dialects.families import FAMILIES
from proxy.dialects.family import ReadOptions
from proxy.money.usage import Tokens
from proxy.types import CacheRule, ResponseHead
from proxy.types.events import Delta, FamilyName, Frame, Kind, Part
from tests.golden.pipeline import PAIRS, Pipeline, call_of, documents_of, written
from tests.golden.recording import read
from tests.golden.replay import MODEL
from tests.golden.texts import texts_of

KEY = b"k" * 32
RULE = CacheRule(ttl=60, tool_calls=True)
ROOM = RULE.max_bytes
NOT_CACHED = {"chat-filters", "chat-no-finish", "messages-refusal"}
UNTYPED = {
    *("chat-late-text", "messages-late-text", "chat-calls-with-equal-index"),
    *("responses-code-interpreter", "responses-mcp", "responses-unknown-events"),
    "responses-rich",  # whose last event lacks items
}
"""Streams with texts that no event represents as their documents do, in pass mode or as a whole."""


def is_shown(name: str, client: str) -> bool:
    """Return True if a client gets the recorded stream, and not that of a fallback."""
    call = read(name).outputs[f"{client} bare"].call
    return bool(call["outcome"] == "success" and call["models"] == [MODEL])


SENT_PAIRS = [pair for pair in PAIRS if is_shown(*pair)]


def sent_frames(name: str, client: FamilyName) -> tuple[FamilyName, list[Frame]]:
    """Return the family of an upstream, and the frames that a client gets."""
    recording = read(name)
    pipeline = Pipeline(recording.family, client)
    return recording.family, pipeline.frames(documents_of([recording.upstream]))


def stored(client: str, frames: Iterable[Frame], *, stream: bool = True) -> bytes | None:
    """Return what the cache stores of an answer to a client."""
    recorder = open_recorder(ResponseHead(stream), call_of(client, stream=stream), RULE, 1)
    for frame in frames:
        recorder.feed(frame)
    if not recorder.is_complete:
        return None
    about = AnswerMetadata(1.0, stream, "openai", "m", Tokens(), recorder.family)
    return dump(KEY, about, recorder.lines)


def replayed(client: str, value: bytes, *, stream: bool = True) -> CachedAnswer:
    text = inflate(KEY, value, ROOM)
    assert text is not None
    answer = parse(text, call_of(client, stream=stream))
    assert answer is not None
    return answer


def read_whole(client: FamilyName, raw: bytes) -> list[Frame]:
    options = ReadOptions(call_of(client, stream=False), whole=True)
    [frame] = FAMILIES[client].reader(options).read(orjson.loads(raw), raw)
    return [frame._replace(last=True)]


def texts_by_kind(frames: Iterable[Frame]) -> dict[tuple[int, Kind], list[str]]:
    """Return the texts of frames by choice and kind: one for each call, joined for all else."""
    parts: dict[Part, str] = {}
    for frame in frames:
        for event in frame.events:
            if type(event) is Delta:
                parts[event.part] = parts.get(event.part, "") + event.text
    texts: dict[tuple[int, Kind], list[str]] = {}
    for part, text in parts.items():
        kind_texts = texts.setdefault((part.choice, part.kind), [])
        if part.kind in ("arguments", "server_arguments"):
            kind_texts.append(text.replace(" ", ""))  # Messages have it as JSON
        else:
            kind_texts[:] = ["".join([*kind_texts, text])]
    return texts


@pytest.mark.parametrize(("name", "client"), SENT_PAIRS)
def test_replayed_stream_has_the_original_texts(name: str, client: FamilyName) -> None:
    family, frames = sent_frames(name, client)
    value = stored(client, frames)
    assert (value is None) is (name in NOT_CACHED)
    if value is None:
        return

    replayed_text = written(client, replayed(client, value).frames)

    sent_text = written(client, frames)
    assert texts_of(client, replayed_text) == texts_of(client, sent_text)
    if family == client:
        assert replayed_text == sent_text


@pytest.mark.parametrize(("name", "client"), SENT_PAIRS)
def test_stream_is_replayed_as_a_body(name: str, client: FamilyName) -> None:
    _, frames = sent_frames(name, client)
    value = stored(client, frames)
    if value is None or name in UNTYPED:
        return
    sent_text = documents_of([written(client, frames)])

    [frame] = read_whole(
        client, written(client, replayed(client, value, stream=False).frames, stream=False)
    )

    assert texts_by_kind([frame]) == texts_by_kind(Pipeline(client, client).frames(sent_text))


@pytest.mark.parametrize("client", sorted({client for _, client in SENT_PAIRS}))
def test_body_is_replayed_unchanged_and_as_a_stream(client: FamilyName) -> None:
    _, frames = sent_frames(f"{client}-text", client)
    raw = written(client, frames, stream=False)
    value = stored(client, read_whole(client, raw), stream=False)
    assert value is not None

    replayed_text = replayed(client, value, stream=False).frames
    streamed = replayed(client, value).frames

    assert written(client, replayed_text, stream=False) == raw
    assert texts_by_kind(streamed) == texts_by_kind(frames)
    assert texts_of(client, written(client, streamed))


@pytest.mark.parametrize("family", ["", "gemini"])
def test_an_entry_of_an_unknown_family_is_a_miss(family: Any) -> None:
    about = AnswerMetadata(1.0, True, "openai", "m", Tokens(), family)
    text = inflate(KEY, dump(KEY, about, [b"{}"]), ROOM)

    assert text is not None
    assert parse(text, call_of("chat")) is None
