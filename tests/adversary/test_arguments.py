"""Guards inspect the values within arguments of tools, and count them."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import GuardBlocked
from proxy.guards.findings import RuleTally
from proxy.guards.stream.arguments import ArgumentsWindow
from proxy.guards.stream.text_filter import ReleasedText
from proxy.guards.stream.window import Window
from proxy.guards.text.documents import MOST_TEXTS, collect_request_texts, collect_response_texts
from proxy.types.guard import Action, GuardRule
from tests.adversary.loops import LAG_S, Lag
from tests.adversary.places import FORMS, PLANTS, says
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import Json, Script, ScriptedUpstream, answer, chat, stream
from tests.for_each import for_each
from tests.guards.doubles import Ticks
from tests.test_pipeline import BEARER
from tools.measure import detector

FINDERS = {
    "keywords": detector(
        "keywords", words=["forbidden"], patterns=[r"\d{3}-\d{2}"], whole_words=True
    ),
    "secrets": detector("secrets", reach=1200),
    "pii": detector("pii", entities=["card", "email", "iban", "ip"], regions=[], threshold=0.5),
    "code": detector("code"),
    "toxicity": detector("toxicity", threshold=0.5),
    "length": detector("length", tokens=3),
}
MARKS = ("\uff46\uff4f\uff52bidden", 'a "b" \\', "x\n", "e\u0301", "%41", "&#102;orbidden", "f o r")
VALUES: dict[str, Callable[[random.Random], object]] = {
    "numbers": lambda draw: draw.randrange(10 ** draw.randrange(1, 20)),
    "numbers with points": lambda draw: draw.random() * 10 ** draw.randrange(8),
    "words that say nothing": lambda draw: draw.choice([True, False, None, ""]),
    "words": lambda draw: draw.choice(["all", "is", "well", "a@b.example", "10.0.0.1", "123-45"]),
    "marks": lambda draw: draw.choice(MARKS),
    "plants": lambda draw: draw.choice(
        [form(PLANTS[name]) for key, form in FORMS.items() for name in PLANTS if says(key, name)]
    ),
    "long words": lambda draw: "word " * draw.randrange(2000),
    "members": lambda draw: {str(draw.randrange(99)): ["forbidden", draw.randrange(9)]},
}


class PieceByPiece(Window):
    __slots__ = ()

    def take(self, text: str) -> list[ReleasedText]:
        return [*self.feed(text), *self.close()]


def read(window: ArgumentsWindow, parts: Sequence[str]) -> tuple[str, str]:
    output = ""
    try:
        for part in parts:
            output += "".join(piece.text for piece in window.feed(part))
        return output + "".join(piece.text for piece in window.close()), ""
    except GuardBlocked as blocked:
        return "", f"{blocked.guard} {blocked.kind}"


def window(kind: type[Window], tallies: Sequence[RuleTally]) -> ArgumentsWindow:
    return ArgumentsWindow(kind(tallies, escaped=True), kind(tallies), tallies)


def at_work(names: Sequence[str], action: Action) -> list[RuleTally]:
    rules = [GuardRule(name, FINDERS[name], action, cased=name != "keywords") for name in names]
    return [RuleTally(name, Ticks()) for name in rules]


@for_each("action", ["mask", "flag", "block"])
@for_each("shape", VALUES)
def test_values_of_arguments_have_the_same_findings(shape: str, action: Action) -> None:
    draw = random.Random(shape)  # noqa: S311  # reproducible
    for names in (*([finder] for finder in FINDERS), ["keywords", "secrets", "pii"], [*FINDERS]):
        for ascii_only in (True, False):
            values = [VALUES[shape](draw) for _ in range(12)]
            text = json.dumps(values, ensure_ascii=ascii_only)
            cut = draw.randrange(len(text))
            tallies, other_tallies = at_work(names, action), at_work(names, action)

            results = read(window(Window, tallies), [text[:cut], text[cut:]])
            assert results == read(window(PieceByPiece, other_tallies), [text[:cut], text[cut:]])
            if not results[1]:
                assert [finder.to_result() for finder in tallies] == [
                    finder.to_result() for finder in other_tallies
                ]


JOINTS = ("", " ", "\n", "\t", "\r\n", '"', "\\", "/", "\b", "é\n", "\\n", "n")
PLANTED = ("jane@example.com", "4111 1111 1111 1111", "forbidden", "123-45", "10.0.0.1", "words")


@for_each("names", [["pii"], ["keywords"], ["secrets"], ["pii", "keywords"]])
def test_arguments_are_masked_like_their_texts(names: list[str]) -> None:
    draw = random.Random(names[0])  # noqa: S311  # reproducible
    for _ in range(60):
        parts = (draw.choice((*JOINTS, *PLANTED)) for _ in range(draw.randrange(1, 9)))
        text = "".join(parts)
        arguments = json.dumps([text], ensure_ascii=draw.random() < 0.5)
        cuts = sorted(draw.sample(range(len(arguments)), min(3, len(arguments))))
        pieces = [arguments[a:b] for a, b in pairwise([0, *cuts, len(arguments)])]

        output, _ = read(window(Window, at_work(names, "mask")), pieces)

        plain = Window(at_work(names, "mask"))
        masked = "".join(piece.text for piece in [*plain.feed(text), *plain.close()])
        assert json.loads(output) == [masked]


BYTES = 1024 * 1024
MANY_VALUES = {
    "numbers": "1,",
    "words without commas": "1 ",
    "empty strings": '"",',
    "strings": '"a",',
    "words that say nothing": "null,",
    "members": '"a":1,',
}
ESCAPES = '["' + "\\u0061\\n" * (BYTES // 8) + '"]'
POLICY = """
policies:
  default:
    match: all
    SIDE: [{guard: keywords, words: [unfindable], action: block, MODE on_error: closed}]
"""
QUESTION: Json = {"messages": [{"role": "user", "content": "Hi"}]}
FREE_S = 6.0  # bound for the inspection of 100,000 texts
MEMORY = 200 * 1024 * 1024


def repeated(value: str, size: int = BYTES) -> str:
    return "[" + value * (size // len(value)) + "1]"


def call(arguments: str) -> Json:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


def request_body(arguments: str) -> Json:
    return {"messages": [{"role": "assistant", "tool_calls": [call(arguments)]}]}


def post(url: str, body: Json) -> tuple[int, bytes]:
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    sent_text = json.dumps({"model": "support-chat", **body})
    connection.request("POST", "/v1/chat/completions", sent_text, BEARER)
    response = connection.getresponse()
    results = response.status, response.read()
    connection.close()
    return results


@dataclass
class Measured:
    status: int
    text: bytes
    lag: float
    cpu_s: float


async def measured(proxy: Proxy, body: Json) -> Measured:
    started_at = time.process_time()
    with Lag() as lag:
        status, text = await asyncio.to_thread(post, proxy.url, body)
    spend = time.process_time() - started_at
    return Measured(status, text, lag.worst, spend)


@for_each("shape", MANY_VALUES)
def test_number_of_values_is_bounded(shape: str) -> None:
    texts = collect_request_texts(request_body(repeated(MANY_VALUES[shape], 8 * BYTES)))

    assert texts.unread == "too_many_texts"
    assert len(texts.texts) <= MOST_TEXTS + 9  # and the names of the call


@pytest.mark.parametrize("shape", ["strings", "empty strings"])
def test_memory_of_values_is_bounded(shape: str) -> None:
    body = request_body(repeated(MANY_VALUES[shape], 8 * BYTES))
    tracemalloc.start()
    collect_request_texts(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < MEMORY


def test_values_of_all_arguments_are_counted_together() -> None:
    part = repeated("1,", 2 * MOST_TEXTS // 10)
    calls = [call(part) for _ in range(12)]

    assert collect_request_texts({"messages": [{"tool_calls": calls[:9]}]}).unread is None
    assert collect_request_texts({"messages": [{"tool_calls": calls}]}).unread == "too_many_texts"


def test_object_arguments_are_values_of_the_body() -> None:
    fields = {
        "choices": [{"delta": {"function_call": {"arguments": {"a": ["b"] * 2 * MOST_TEXTS}}}}]
    }

    for texts in (
        collect_request_texts(fields),
        collect_response_texts(fields),
        collect_response_texts(fields, is_event=True),
    ):
        assert texts.unread is None
        assert len(texts.texts) > 2 * MOST_TEXTS


def test_string_of_escapes_is_one_value() -> None:
    started_at = time.process_time()
    texts = collect_request_texts(request_body(ESCAPES))

    assert texts.unread is None
    assert len(texts.texts) < 9
    assert time.process_time() - started_at < 1.0


def call_on(side: str, arguments: str) -> tuple[Json, Script]:
    """Return a request and its response, one of which has a tool call with these arguments."""
    message = {"role": "assistant", "tool_calls": [{"index": 0, **call(arguments)}]}
    form = "delta" if side == "stream" else "message"
    choice = {"index": 0, form: message, "finish_reason": "tool_calls"}
    document = {**chat(""), "choices": [choice]}
    if side == "question":
        return request_body(arguments), answer(chat())
    if side == "answer":
        return QUESTION, answer(document)
    return {**QUESTION, "stream": True}, stream([document])


@asynccontextmanager
async def guarded_side(
    folder: Path, upstream: ScriptedUpstream, side: str, mode: str = "", **settings: Any
) -> AsyncIterator[Proxy]:
    policy = POLICY.replace("SIDE", "input" if side == "question" else "output")
    text = policies_for(upstream.url) + policy.replace("MODE", mode)
    async with running_proxy(folder / "policies", text, **settings) as proxy:
        yield proxy


SIDES = [
    *(("question", "", shape) for shape in MANY_VALUES),
    *(("question", "mode: shadow,", shape) for shape in MANY_VALUES),
    *(("answer", "", shape) for shape in MANY_VALUES),
    *(("stream", "", shape) for shape in ("numbers", "strings", "members")),
]


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("side", "mode", "shape"), SIDES)
async def test_values_of_arguments_do_not_block_the_loop(
    side: str, mode: str, shape: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    body, script = call_on(side, repeated(MANY_VALUES[shape]))
    upstream.answer_with(script)
    async with guarded_side(tmp_path, upstream, side, mode) as proxy:
        response = await measured(proxy, body)

    blocked = b"guardrail_blocked" in response.text
    if side == "stream":
        assert blocked or b'"guard_unavailable"' in response.text
    else:
        assert (response.status, blocked) == ((200, False) if mode else (400, True))
    assert response.cpu_s < FREE_S
    assert response.lag < LAG_S


@pytest.mark.parametrize("side", ["question", "answer", "stream"])
@pytest.mark.parametrize(("values", "passes"), [(900, True), (1100, False)])
async def test_lower_bound_of_values_reads_fewer(
    values: int, passes: bool, side: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    body, script = call_on(side, repeated("1,", 2 * values))
    upstream.answer_with(script)
    async with guarded_side(tmp_path, upstream, side, body_values=1000) as proxy:
        response = await measured(proxy, body)

    assert (b"guardrail_blocked" not in response.text) == passes
