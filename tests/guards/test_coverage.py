"""No field, disguise or position hides a word or a credential: in and out, whole and streamed.

What is only measured, not promised, is in docs/guard-quality.md.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from proxy.errors import GuardBlocked, InvalidField
from proxy.guards.engine import Engine
from proxy.guards.text.documents import collect_request_texts, collect_response_texts
from proxy.guards.text.walk import IGNORED_FIELDS
from proxy.types.events import Frame
from proxy.types.guard import GuardRule
from tests.doubles import (
    Json,
    chat,
    chat_events,
    item_events,
    legacy_completion,
    legacy_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
)
from tests.for_each import for_each
from tests.guards.calls import ask_route
from tests.guards.conftest import Guard
from tests.guards.doubles import Ticks, stream_inspector
from tests.guards.stream import frames as made
from tests.guards.text.test_walk import MARK, MINIMAL, PATHS, SHAPES, chat_body, fields
from tests.test_pipeline import Route, every_route
from tools.disguises import MUST, SHOULD, WORDS_ONLY, credentials
from tools.measure import detector, finds

WORD = "hippo"
KEY = credentials(random.Random(11))[0]
WORDS = detector("keywords", words=[WORD])
SECRETS = detector("secrets", reach=1200)
RULES = (GuardRule("words", WORDS), GuardRule("secrets", SECRETS, cased=True))
EVERY = {**MUST, **SHOULD, **WORDS_ONLY}
POSITIONS = ("{}", "{} at the start", "at the end {}", "(in: the, {}; middle)")


def insert_text(shape: Any, text: str) -> Any:
    """Replace the mark with a text anywhere in a shape."""
    if isinstance(shape, dict):
        return {insert_text(key, text): insert_text(value, text) for key, value in shape.items()}
    if isinstance(shape, list):
        return [insert_text(item, text) for item in shape]
    if isinstance(shape, str) and shape.startswith("{") and "\\u" in text:
        return shape.replace(MARK, text)  # escape the text for the JSON string
    if isinstance(shape, str) and shape.startswith("{"):  # arguments are JSON in a string
        return json.dumps(insert_text(json.loads(shape), text))
    return shape.replace(MARK, text) if isinstance(shape, str) else shape


def disguise_words(name: str) -> str:
    """Return the disguised word, and the disguised key if the disguise can express it."""
    disguise = EVERY[name]
    return disguise(WORD) if name in WORDS_ONLY else f"{disguise(WORD)} and {disguise(KEY)}"


def contains_text(body: Json, text: str) -> bool:
    """Return True if a request contains the text, also within a JSON string."""
    single = json.dumps(text)[1:-1]
    dumped = json.dumps(body)
    return single in dumped or json.dumps(single)[1:-1] in dumped


async def silent_rules(body: Json, name: str) -> set[str]:
    """Return the rules that should find the text in a request but do not."""
    inspection = await Engine(Ticks()).inspect(RULES, collect_request_texts(body).texts)
    blind = {result.guard for result in inspection.results if not result.findings}
    return blind - ({"secrets"} if name in WORDS_ONLY else set())


def bodies(dialect: str, endpoint: str, text: str) -> Iterator[tuple[str, Json]]:
    """Yield a request with a text for each shape of each field of a dialect."""
    table = [item for item in fields() if item[:2] == (dialect, endpoint)]
    for _, _, name, field in table:
        context = {"stream": True} if name == "stream_options" else {}
        for shape in () if name in IGNORED_FIELDS else SHAPES:
            value_with_text = insert_text(shape, text)
            if field.check(value_with_text) is not None:
                continue
            try:
                members = {**MINIMAL[endpoint], **context, name: value_with_text}
                body = chat_body(dialect, endpoint, members)
            except InvalidField:
                continue  # the field has a closed set of values
            if contains_text(body, text):
                yield f"{name}: {shape}", body
    for shape in SHAPES:
        unknown = insert_text({"unknown_to_all": shape, "outer": [{"inner": shape}]}, text)
        yield f"unknown: {shape}", chat_body(dialect, endpoint, {**MINIMAL[endpoint], **unknown})


def disguised_requests(disguise: str) -> Iterator[tuple[str, Json]]:
    """Give the requests that a disguise is tried in: a third of all, another one for the next, and
    whatever else it needs to meet every field and every shape. What has none is tried in all."""
    turn, met = [*EVERY].index(disguise), set[object]()
    for dialect, endpoint in PATHS:
        every = bodies(dialect, endpoint, f"see {disguise_words(disguise)} !")
        for number, (name, body) in enumerate(every, turn):
            field, _, shape = name.partition(": ")
            meets = {(dialect, endpoint, field), shape}
            if turn == 0 or number % 3 == 0 or not meets <= met:
                met |= meets
                yield f"{dialect} {endpoint} {name}", body


@pytest.mark.parametrize("disguise", EVERY)
async def test_no_request_field_hides_text(disguise: str) -> None:
    paths = set()
    for name, body in disguised_requests(disguise):
        paths.add(tuple(name.split()[:2]))
        assert await silent_rules(body, disguise) == set(), name

    assert paths == set(PATHS)


@for_each("disguise", EVERY)
async def test_no_position_in_a_text_hides_text(disguise: str) -> None:
    for position in POSITIONS:
        body = {"prompt": position.format(disguise_words(disguise))}

        assert await silent_rules(body, disguise) == set(), position


@for_each("index", [0, 1, 2])
@for_each("role", ["system", "developer", "user", "assistant", "tool", "stranger"])
async def test_every_message_of_every_role_is_inspected(role: str, index: int) -> None:
    messages: list[Json] = [{"role": "user", "content": "Hello there."} for _ in range(3)]
    messages[index] = {"role": role, "content": disguise_words("as it is")}

    assert await silent_rules({"messages": messages, "prompt": "beside"}, "as it is") == set()
    body = {"messages": messages[:1], "prompt": disguise_words("as it is")}
    assert await silent_rules(body, "") == set()


# Places of a streamed text: a piece as a choice of a chunk.
LANES: Mapping[str, Callable[[str], Json]] = {
    "text": lambda piece: {"text": piece},
    "content": lambda piece: {"delta": {"content": piece}},
    "a content part": lambda piece: {"delta": {"content": [{"type": "text", "text": piece}]}},
    "a refusal": lambda piece: {"delta": {"refusal": piece}},
    "reasoning": lambda piece: {"delta": {"reasoning_content": piece}},
    "a field that nobody knows": lambda piece: {"delta": {"thoughts": {"deep": piece}}},
    "beside the choice's own": lambda piece: {"delta": {}, "note": piece},
    "the second choice": lambda piece: {"index": 1, "delta": {"content": piece}},
    "arguments": lambda piece: {
        "delta": {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
    },
    "arguments of the second call": lambda piece: {
        "delta": {"tool_calls": [{"index": 1, "function": {"arguments": piece}}]}
    },
    "the old arguments": lambda piece: {"delta": {"function_call": {"arguments": piece}}},
    "tokens": lambda piece: {
        "delta": {"content": piece},
        "logprobs": {"content": [{"token": piece, "top_logprobs": []}]},
    },
}
BLOCKED = (
    "as it is", "zero-width spaces", "percent", "letters of another script",
    "replacement characters", "base64 twice", "hex", "escapes of programs",
    "decimal entities without an end", "Markdown's marks", "tags of HTML",
    "a hyphen at a line's end",
)  # fmt: skip
CUTS = (1, 5, 10_000)
LONG = "All is well and calm here, as it was. " * 40
DISTANCE, AHEAD = 300, 100  # text far before the word comes in larger pieces


def streamed(lane: str, text_before: str, text: str, cut: int) -> list[Json]:
    """Cut a text, and the end of what is before it. The rest of that fills windows: it comes in
    larger pieces."""
    full_text = text_before + text
    full_text = json.dumps({"note": full_text}) if "arguments" in lane else full_text
    nearby = max(0, len(text_before) - DISTANCE) if cut < AHEAD else 0
    pieces = [full_text[index : min(index + AHEAD, nearby)] for index in range(0, nearby, AHEAD)]
    pieces += [full_text[index : index + cut] for index in range(nearby, len(full_text), cut)]
    choices = [{"index": 0, "finish_reason": None, **LANES[lane](piece)} for piece in pieces]
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "smol"}
    end: Json = {"index": choices[0]["index"], "delta": {}, "finish_reason": "stop"}
    return [{**head, "choices": [choice]} for choice in (*choices, end)]


def released_text(documents: list[Json]) -> str:
    """Join the released texts except names."""
    found_texts = [collect_response_texts(doc, is_event=True).texts for doc in documents]
    return "".join(text.text for texts in found_texts for text in texts)


async def fed(rule: GuardRule, events: list[Json]) -> tuple[bool, list[Json]]:
    """Stream a chat through a rule. Return whether it blocked, and the documents of the client."""
    watching = stream_inspector(rule)
    released: list[Frame] = []
    try:
        for frame in made.read(*events):
            released += await watching.inspect(frame)
    except GuardBlocked:
        return True, made.documents(released)
    return False, made.documents(released)


@for_each("disguise", BLOCKED)
@pytest.mark.parametrize("lane", LANES)
async def test_no_place_of_a_stream_hides_text(lane: str, disguise: str) -> None:
    for cut, string_before, (rule, plant) in product(
        CUTS, ("", LONG), zip(RULES, (WORD, KEY), strict=True)
    ):
        if disguise in WORDS_ONLY and plant == KEY:
            continue
        text = f"look at {EVERY[disguise](plant)} today"

        blocked, released = await fed(rule, streamed(lane, string_before, text, cut))

        where = rule.name, cut, len(string_before)
        assert blocked, where
        text = released_text(released)
        assert not finds(rule.detector, text, cased=rule.cased), where  # type: ignore[arg-type]
        assert plant[:4] not in text, where


@every_route
async def test_no_route_shows_blocked_text(route: Route, streamed: bool, guard: Guard) -> None:
    text = f"{LONG[:200]} look at {WORD} and {KEY} today"
    events = chat_events(*text) if route.chat else legacy_events(*text)
    document = chat(text) if route.chat else legacy_completion(text)
    if "input" in route.content:  # the upstream also has a Responses endpoint
        item = text_item(text)
        document = response(item)
        events = response_events(item_events(0, item, *text), document=document)
    proxy = await guard(
        f"output: [{{guard: keywords, words: [{WORD}]}}, {{guard: secrets}}]",
        stream(events) if streamed else respond(document),
    )

    reply = await ask_route(proxy, route, route.content, streamed=streamed)

    assert b"blocked this call." in reply.raw  # errors of Messages have no code
    assert WORD.encode() not in reply.raw
    assert KEY[:4].encode() not in reply.raw
