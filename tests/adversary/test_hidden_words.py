"""Searches for members of a response in which a blocked word escapes the output guards.

Log-probabilities, ids, names and headers of responses are read as clients read them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.client_readers import assemble_texts
from tests.doubles import Json, ScriptedUpstream, chat, legacy_completion, respond, stream
from tests.guards.calls import ask_route, guarded
from tests.test_pipeline import ROUTES, Route

WORD = "Hydropolis"
BYTES = [*WORD.encode()]
NAMES = ("openai", "openai-chat", "portkey-chat", "fireworks-chat", "scale-5-chat", "multimodel",
         "enkrypt", "enkrypt-chat")  # fmt: skip
STREAMED = [name for name in NAMES if ROUTES[name].streams]


def token(**members: Any) -> Json:
    document = {"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": [], **members}
    return {"content": [document]}


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

Send = Callable[..., Awaitable[bytes]]


def build_whole(route: Route, choice: Json, **members: Any) -> Json:
    body = chat("a", **members) if route.chat else legacy_completion("a", **members)
    return {**body, "choices": [{**body["choices"][0], **choice}]}


def build_event(choice: Json, **members: Any) -> Json:
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "smol", **members}
    return {**head, "choices": [{"index": 0, "finish_reason": None, **choice}]}


def text_choice(route: Route, text: str) -> Json:
    return {"delta": {"content": text}} if route.chat else {"text": text}


@pytest.fixture
async def send(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Send]:
    """Return a function that sends a guarded call, checks the response and returns it.

    The upstream responds with a document, or streams a list of events.
    """
    async with guarded(
        tmp_path, upstream, f"output: [{{guard: keywords, words: [{WORD}]}}]"
    ) as proxy:

        async def send_call(route: Route, response: Any, *label: object) -> bytes:
            is_stream = isinstance(response, list)
            upstream.answer_with(stream(response) if is_stream else respond(response))
            reply = await ask_route(proxy, route, route.content, streamed=is_stream)
            readings = assemble_texts(reply.raw).items()
            assert [key for key, text in readings if WORD in text] == [], (label, reply.raw)
            return reply.raw

        yield send_call


@pytest.mark.parametrize("name", NAMES)
async def test_logprobs_are_guarded(name: str, send: Send) -> None:
    route = ROUTES[name]
    choices = (
        text_choice(route, "a"),
        text_choice(route, ""),
        text_choice(route, "") | {"index": 1, "finish_reason": "stop"},
    )
    for label, logprobs in LOGPROBS.items():
        raw = await send(route, build_whole(route, {"logprobs": logprobs}), label)
        assert b"guardrail_blocked" in raw, label
        for choice in choices if route.streams else ():
            event = build_event({**choice, "logprobs": logprobs})
            await send(route, [event, build_event(text_choice(route, " b"))], label, choice)


async def test_bytes_of_the_shown_text_pass_unchanged(send: Send) -> None:
    halves = [{"token": "\\xc3", "bytes": [0xC3]}, {"token": "\\xa9", "bytes": [0xA9]}]
    choice = {"message": {"role": "assistant", "content": "é"}, "logprobs": {"content": halves}}
    route = ROUTES["openai-chat"]

    raw = await send(route, build_whole(route, choice))

    assert json.loads(raw)["choices"][0]["logprobs"] == {"content": halves}


LONG = f"the city of {WORD} "
NAMES_OF_A_RESPONSE: tuple[Json, ...] = (
    *({name: LONG} for name in ("id", "model", "object", "system_fingerprint", "service_tier")),
    {"id": "x-" * 64 + WORD},
)


@pytest.mark.parametrize("name", ["openai", "openai-chat"])
async def test_names_of_a_response_are_guarded(name: str, send: Send) -> None:
    route = ROUTES[name]
    for members in NAMES_OF_A_RESPONSE:
        await send(route, build_whole(route, {}, **members))
        events = [build_event(text_choice(route, "a"), **members)]
        await send(route, [*events, build_event(text_choice(route, "b"))])


async def test_ids_of_calls_are_guarded(send: Send) -> None:
    route = ROUTES["openai-chat"]
    call = {"index": 0, "id": LONG, "type": "function", "function": {"name": "f"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}

    await send(route, build_whole(route, {"message": message}))
    await send(route, [build_event({"delta": message})])


async def test_response_headers_carry_no_text(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(chat("a"), 200, f"openai-model: {LONG}", "openai-version: 1"))
    async with guarded(tmp_path, upstream, "output: [{guard: keywords, words: [x]}]") as proxy:
        reply = await ask_route(proxy, ROUTES["openai-chat"])

    assert WORD not in str(reply.headers)
    assert reply.headers["openai-version"] == "1"


@pytest.mark.parametrize(
    "invisible",
    ["\0", "\x07", "\x08", "\x1b", "\x7f", "\x85", "\ue000", "\ufdd0", "\uffff", "\U000f0000"],
)
async def test_invisible_characters_hide_no_word(invisible: str, send: Send) -> None:
    route = ROUTES["openai-chat"]
    text = f"Hyd{invisible}ropolis"

    whole = await send(route, build_whole(route, {"message": {"content": text}}))
    streamed = await send(route, [build_event(text_choice(route, letter)) for letter in text])

    assert b"guardrail_blocked" in whole
    assert not any("ropolis" in shown for shown in assemble_texts(streamed).values())
