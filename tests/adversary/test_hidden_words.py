"""A blocked word is found anywhere in a response, whole and streamed."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.guards.text.base64_text import parse_data
from tests.doubles import Json, ScriptedUpstream, answer, chat, legacy, stream
from tests.for_each import for_each
from tests.guards.calls import ask_route, guarded
from tests.test_pipeline import ROUTES, Route

WORD = "Hydropolis"
BYTES = [*WORD.encode()]
NAMES = ("openai", "openai-chat", "portkey-chat", "fireworks-chat", "scale-5-chat", "multimodel",
         "enkrypt", "enkrypt-chat")  # fmt: skip
STREAMED = [name for name in NAMES if ROUTES[name].streams]


def token(**options: Any) -> Json:
    return {
        "content": [{"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": [], **options}]
    }


LOGPROBS: Mapping[str, Any] = {
    "a string": WORD,
    "a list": [WORD],
    "a list of lists": [[WORD]],
    "beside a token": token(note=WORD),
    "beside all tokens": {**token(), "zzz": WORD},
    "a name beside all tokens": {**token(), WORD: 1},
    "a list for a token": token(token=[WORD]),
    "an object for a token": token(token={"x": WORD}),
    "a string for a number": token(logprob=WORD),
    "bytes of a token": token(bytes=BYTES),
    "a string for bytes": token(bytes=WORD),
    "strings for bytes": token(bytes=[WORD]),
    "bytes of several tokens": {
        "content": [{"token": "a", "bytes": BYTES[:4]}, {"token": "b", "bytes": BYTES[4:]}]
    },
    "a token that was not chosen": token(top_logprobs=[{"token": WORD}]),
    "bytes of a token that was not chosen": token(top_logprobs=[{"token": "b", "bytes": BYTES}]),
    "beside a token that was not chosen": token(top_logprobs=[{"token": "b", "x": {"y": WORD}}]),
    "tokens that are a string": {"tokens": WORD},
    "numbers of tokens": {"tokens": ["a"], "token_logprobs": [WORD]},
    "places of tokens": {"tokens": ["a"], "text_offset": [WORD]},
    "a name in the top": {"tokens": ["a"], "top_logprobs": [{WORD: -1}]},
    "a value in the top": {"tokens": ["a"], "top_logprobs": [{"a": WORD}]},
    "a list in the top": {"tokens": ["a"], "top_logprobs": [[{"x": WORD}]]},
}

LAST_OF_SECOND: Json = {"index": 1, "finish_reason": "stop"}


def whole_answer(route: Route, choice: Json, **options: Any) -> Json:
    body = chat("a", **options) if route.chat else legacy("a", **options)
    body["choices"] = [{**body["choices"][0], **choice}]
    return body


def event(choice: Json, **options: Any) -> Json:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "smol", **options}
    return {**head, "choices": [{"index": 0, "finish_reason": None, **choice}]}


def choice_of(route: Route, text: str) -> Json:
    return {"delta": {"content": text}} if route.chat else {"text": text}


@pytest.fixture
async def look(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Callable[..., Any]]:
    """Return a function that sends a guarded call and returns the response bytes."""
    rule = f"output: [{{guard: keywords, words: [{WORD}]}}]"
    async with guarded(tmp_path, upstream, rule) as proxy:

        async def look_at(route: Route, script: Any, *, streamed: bool) -> bytes:
            upstream.answer_with(script)
            return (await ask_route(proxy, route, route.content, streamed=streamed)).raw

        yield look_at


def documents(written: str) -> list[Json]:
    starts = ((line, line.find("{")) for line in written.splitlines())
    return [json.loads(line[start:]) for line, start in starts if start >= 0]


def bytes_within(value: Any) -> list[int]:
    if isinstance(value, list):
        return [byte for item in value for byte in bytes_within(item)]
    if not isinstance(value, dict):
        return []
    own_value = value.get("bytes")
    mine = (
        [item for item in own_value if isinstance(item, int)] if isinstance(own_value, list) else []
    )
    return mine + [byte for item in value.values() for byte in bytes_within(item)]


def spelled(read: bytes) -> set[str]:
    """Give each way in which an answer may spell something out: as it is written, by the bytes
    of its tokens, and by the texts of its chunks put together.
    """
    written = read.decode()
    pieces = ""
    for document in documents(written):
        for choice in document.get("choices", ()):
            for value in (choice.get("message"), choice.get("delta"), choice):
                pieces += str((value or {}).get("content") or (value or {}).get("text") or "")
    return {written, pieces, "".join(map(chr, bytes_within(documents(written))))}


def hidden(read: bytes) -> bool:
    return not any(WORD in name for name in spelled(read))


@pytest.mark.parametrize("name", NAMES)
async def test_whole_response_logprobs_are_guarded(name: str, look: Callable[..., Any]) -> None:
    route = ROUTES[name]
    for place, logprobs in LOGPROBS.items():
        read = await look(
            route, answer(whole_answer(route, {"logprobs": logprobs})), streamed=False
        )
        assert hidden(read), place
        assert b"guardrail_blocked" in read, place


@pytest.mark.parametrize("name", STREAMED)
async def test_streamed_logprobs_are_guarded(name: str, look: Callable[..., Any]) -> None:
    route = ROUTES[name]
    for place, logprobs in LOGPROBS.items():
        for choice in (
            choice_of(route, "a"),
            choice_of(route, ""),
            choice_of(route, "") | LAST_OF_SECOND,
        ):
            events = [event({**choice, "logprobs": logprobs}), event(choice_of(route, " b"))]
            read = await look(route, stream(events), streamed=True)
            assert hidden(read), (place, choice)


async def test_bytes_of_the_shown_text_pass_unchanged(look: Callable[..., Any]) -> None:
    halves = [{"token": "\\xc3", "bytes": [0xC3]}, {"token": "\\xa9", "bytes": [0xA9]}]
    choice = {"message": {"role": "assistant", "content": "é"}, "logprobs": {"content": halves}}
    route = ROUTES["openai-chat"]

    read = await look(route, answer(whole_answer(route, choice)), streamed=False)

    assert json.loads(read)["choices"][0]["logprobs"] == {"content": halves}


CUT: Mapping[str, list[Json]] = {
    "at a finish": [event({"delta": {"content": "Hydro"}, "finish_reason": "stop"}),
        event({"delta": {"content": "polis"}})],
    "at a finish of each chunk": [
        event({"delta": {"content": part}, "finish_reason": "stop"}) for part in WORD
    ],
    "at a finish without text": [event({"delta": {"content": "Hydro"}}),
        event({"delta": {}, "finish_reason": "stop"}), event({"delta": {"content": "polis"}})],
    "at a finish of the other choice's chunk": [
        event({"delta": {"content": "Hydro"}, "finish_reason": "length"}),
        event({"index": 1, "delta": {"content": "x"}}),
        event({"delta": {"content": "polis"}, "finish_reason": "stop"}),
    ],
    "between message and delta": [event({"message": {"content": "Hyd"}}),
        event({"delta": {"content": "ropolis"}})],
    "between delta and message": [event({"delta": {"content": "Hyd"}}),
        event({"message": {"content": "ropolis"}})],
    "between message and delta of one chunk": [
        event({"message": {"content": "Hyd"}, "delta": {"content": "ropolis"}})
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in STREAMED if ROUTES[name].chat])
async def test_no_cut_of_a_stream_hides_a_word(name: str, look: Callable[..., Any]) -> None:
    for place, events in CUT.items():
        read = await look(ROUTES[name], stream(events), streamed=True)
        assert hidden(read), place


LONG = f"the city of {WORD} "
FRAME: Mapping[str, Json] = {
    **{name: {name: LONG} for name in ("id", "model", "object", "system_fingerprint")},
    "service_tier": {"service_tier": LONG},
    "a long id": {"id": "x-" * 64 + WORD},
}


@pytest.mark.parametrize("name", ["openai", "openai-chat"])
async def test_response_names_are_not_unread_text(name: str, look: Callable[..., Any]) -> None:
    route = ROUTES[name]
    for place, said_so in FRAME.items():
        read = await look(route, answer(whole_answer(route, {}, **said_so)), streamed=False)
        assert hidden(read), place
        events = [event(choice_of(route, "a"), **said_so), event(choice_of(route, "b"))]
        assert hidden(await look(route, stream(events), streamed=True)), place


async def test_ids_of_calls_are_guarded(look: Callable[..., Any]) -> None:
    route = ROUTES["openai-chat"]
    call = {"index": 0, "id": LONG, "type": "function", "function": {"name": "f"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}

    assert hidden(
        await look(route, answer(whole_answer(route, {"message": message})), streamed=False)
    )
    assert hidden(await look(route, stream([event({"delta": message})]), streamed=True))


async def test_response_headers_carry_no_text(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    route = ROUTES["openai-chat"]
    upstream.answer_with(answer(chat("a"), 200, f"openai-model: {LONG}", "openai-version: 1"))
    async with guarded(tmp_path, upstream, "output: [{guard: keywords, words: [x]}]") as proxy:
        reply = await ask_route(proxy, route)

    assert WORD not in str(reply.headers)
    assert reply.headers["openai-version"] == "1"


DATA: Mapping[str, str] = {
    "white space": "data:text/plain;base64,SHlkcm9w\nb2xp cyBpcyBncmVhdCB5ZXM=",
    "utf-16": base64.b64encode(WORD.encode("utf-16")).decode(),
    "utf-16 without a mark": base64.b64encode(WORD.encode("utf-16le")).decode(),
    "big ends first": base64.b64encode(WORD.encode("utf-16be")).decode(),
}


@for_each("place", DATA)
def test_no_encoding_of_data_hides_its_text(place: str) -> None:
    data = parse_data(DATA[place], bare=True)

    assert data is not None
    assert WORD in (data.text or "")


@pytest.mark.parametrize(
    "unseen",
    ["\0", "\x07", "\x08", "\x1b", "\x7f", "\x85", "\ue000", "\ufdd0", "\uffff", "\U000f0000"],
)
async def test_invisible_characters_hide_no_word(unseen: str, look: Callable[..., Any]) -> None:
    route = ROUTES["openai-chat"]
    text = f"Hyd{unseen}ropolis"
    choice = {"message": {"role": "assistant", "content": text}}

    read = await look(route, answer(whole_answer(route, choice)), streamed=False)
    assert b"guardrail_blocked" in read
    events = [event(choice_of(route, name)) for name in text]
    read = await look(route, stream(events), streamed=True)
    assert b"ropolis" not in b"".join(spelled_out.encode() for spelled_out in spelled(read))
