"""Searches for values in arguments of tool calls that guards miss, mask wrongly or do not bound."""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import GuardBlocked
from proxy.guards.findings import RuleTally
from proxy.guards.stream.arguments import ArgumentsFilter
from proxy.guards.stream.text_filter import ReleasedText
from proxy.guards.stream.window import Window
from proxy.guards.text.documents import MAX_TEXTS, collect_request_texts, collect_response_texts
from proxy.types.guard import Action, GuardRule
from tests.adversary.event_loops import (
    LAG_S,
    Measurement,
    measured_proxy,
    stream_bytes,
    whole_bytes,
)
from tests.adversary.hidden_values import FORMS, VALUES, keeps_value
from tests.doubles import Json, chat
from tests.for_each import for_each
from tests.guards.doubles import Ticks
from tests.test_pipeline import MESSAGES
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
SPECIAL_TEXTS = (
    *("\uff46\uff4f\uff52bidden", 'a "b" \\', "x\n", "e\u0301", "%41", "&#102;orbidden", "f o r"),
)
HIDDEN_VALUES = [
    form(VALUES[name]) for key, form in FORMS.items() for name in VALUES if keeps_value(key, name)
]
DRAWS: dict[str, Callable[[random.Random], object]] = {
    "numbers": lambda draw: draw.randrange(10 ** draw.randrange(1, 20)),
    "fractions": lambda draw: draw.random() * 10 ** draw.randrange(8),
    "constants": lambda draw: draw.choice([True, False, None, ""]),
    "words": lambda draw: draw.choice(["all", "is", "well", "a@b.example", "10.0.0.1", "123-45"]),
    "special texts": lambda draw: draw.choice(SPECIAL_TEXTS),
    "hidden values": lambda draw: draw.choice(HIDDEN_VALUES),
    "long texts": lambda draw: "word " * draw.randrange(2000),
    "members": lambda draw: {str(draw.randrange(99)): ["forbidden", draw.randrange(9)]},
}


class PieceByPiece(Window):
    __slots__ = ()

    def take(self, text: str) -> list[ReleasedText]:
        return [*self.feed(text), *self.close()]


def feed(window: ArgumentsFilter, parts: Sequence[str]) -> tuple[str, str]:
    """Return the released text, or the guard and the kind of a finding that blocks."""
    try:
        released = [piece for part in parts for piece in window.feed(part)]
        return "".join(piece.text for piece in (*released, *window.close())), ""
    except GuardBlocked as blocked:
        return "", f"{blocked.guard} {blocked.kind}"


def build_window(kind: type[Window], tallies: Sequence[RuleTally]) -> ArgumentsFilter:
    return ArgumentsFilter(kind(tallies, in_json=True), kind(tallies), tallies)


def build_tallies(names: Sequence[str], action: Action) -> list[RuleTally]:
    rules = [GuardRule(name, FINDERS[name], action, cased=name != "keywords") for name in names]
    return [RuleTally(rule, Ticks()) for rule in rules]


@for_each("action", ["mask", "flag", "block"])
@for_each("kind", DRAWS)
def test_values_of_arguments_have_the_same_findings(kind: str, action: Action) -> None:
    """Values are inspected together or one by one with equal results."""
    draw = random.Random(kind)  # noqa: S311  # reproducible
    for names in (*([finder] for finder in FINDERS), ["keywords", "secrets", "pii"], [*FINDERS]):
        for ascii_only in (True, False):
            text = json.dumps([DRAWS[kind](draw) for _ in range(12)], ensure_ascii=ascii_only)
            cut = draw.randrange(len(text))
            parts = [text[:cut], text[cut:]]
            together, separate = build_tallies(names, action), build_tallies(names, action)

            released, error = feed(build_window(Window, together), parts)

            assert (released, error) == feed(build_window(PieceByPiece, separate), parts)
            if not error:
                results = [[tally.to_result() for tally in each] for each in (together, separate)]
                assert results[0] == results[1]


JOINTS = ("", " ", "\n", "\t", "\r\n", '"', "\\", "/", "\b", "é\n", "\\n", "n")
TEXTS = ("jane@example.com", "4111 1111 1111 1111", "forbidden", "123-45", "10.0.0.1", "words")


@for_each("names", [["pii"], ["keywords"], ["secrets"], ["pii", "keywords"]])
def test_arguments_are_masked_like_their_texts(names: list[str]) -> None:
    draw = random.Random(names[0])  # noqa: S311  # reproducible
    for _ in range(60):
        parts = (draw.choice((*JOINTS, *TEXTS)) for _ in range(draw.randrange(1, 9)))
        text = "".join(parts)
        arguments = json.dumps([text], ensure_ascii=draw.random() < 0.5)
        cuts = sorted(draw.sample(range(len(arguments)), min(3, len(arguments))))
        pieces = [arguments[a:b] for a, b in pairwise([0, *cuts, len(arguments)])]

        output, _ = feed(build_window(Window, build_tallies(names, "mask")), pieces)

        plain = Window(build_tallies(names, "mask"))
        masked = "".join(piece.text for piece in [*plain.feed(text), *plain.close()])
        assert json.loads(output) == [masked]


MIB = 1024 * 1024
MANY_VALUES = {
    "numbers": "1,",
    "numbers without commas": "1 ",
    "empty strings": '"",',
    "strings": '"a",',
    "constants": "null,",
    "members": '"a":1,',
}
MAX_CPU_S = 6.0  # for the inspection of 100,000 texts
MAX_MEMORY_BYTES = 200 * MIB


def repeat_value(value: str, size: int = MIB) -> str:
    return "[" + value * (size // len(value)) + "1]"


def call(arguments: str) -> Json:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


def build_request(*arguments: str) -> Json:
    return {"messages": [{"role": "assistant", "tool_calls": [*map(call, arguments)]}]}


@pytest.mark.parametrize("kind", MANY_VALUES)
def test_number_and_memory_of_values_are_bounded(kind: str) -> None:
    body = build_request(repeat_value(MANY_VALUES[kind], 8 * MIB))
    if "strings" in kind:
        tracemalloc.start()

    texts = collect_request_texts(body)

    assert texts.incomplete_reason == "too_many_texts"
    assert len(texts.texts) <= MAX_TEXTS + 9  # and the names of the call
    if "strings" in kind:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < MAX_MEMORY_BYTES


def test_values_of_all_arguments_are_counted_together() -> None:
    arguments = [repeat_value("1,", 2 * MAX_TEXTS // 10)] * 12

    assert collect_request_texts(build_request(*arguments[:9])).incomplete_reason is None
    assert collect_request_texts(build_request(*arguments)).incomplete_reason == "too_many_texts"


def test_object_arguments_are_values_of_the_body() -> None:
    function_call = {"arguments": {"a": ["b"] * 2 * MAX_TEXTS}}
    document = {"choices": [{"delta": {"function_call": function_call}}]}

    for texts in (
        collect_request_texts(document),
        collect_response_texts(document),
        collect_response_texts(document, is_event=True),
    ):
        assert texts.incomplete_reason is None
        assert len(texts.texts) > 2 * MAX_TEXTS


def test_string_of_escapes_is_one_value() -> None:
    body = build_request('["' + "\\u0061\\n" * (MIB // 8) + '"]')
    started_at = time.process_time()
    texts = collect_request_texts(body)

    assert texts.incomplete_reason is None
    assert len(texts.texts) < 9
    assert time.process_time() - started_at < 1.0


async def measure_call(
    folder: Path, side: str, arguments: str, mode: str = "", **settings: Any
) -> Measurement:
    """Send a call whose request, response or stream has arguments, past a guard of that side."""
    member = "delta" if side == "stream" else "message"
    message = {"role": "assistant", "tool_calls": [{"index": 0, **call(arguments)}]}
    choices = [{"index": 0, member: message, "finish_reason": "tool_calls"}]
    document = chat("") if side == "input" else chat("", choices=choices)
    guards = "input" if side == "input" else "output"
    rule = f"{{guard: keywords, words: [unfindable], action: block, {mode} on_error: closed}}"
    policy = f"policies: {{default: {{match: all, {guards}: [{rule}]}}}}\n"
    body = build_request(arguments) if side == "input" else MESSAGES
    body = {"model": "support-chat", **body, "stream": side == "stream"}
    async with measured_proxy(folder, policy, **settings) as measured:
        measured.response = stream_bytes(document) if side == "stream" else whole_bytes(document)
        return await measured.measure("/v1/chat/completions", body, allowed_s=LAG_S)


SIDES = [
    *(("input", "", kind) for kind in MANY_VALUES),
    *(("input", "mode: shadow,", kind) for kind in MANY_VALUES),
    *(("output", "", kind) for kind in MANY_VALUES),
    *(("stream", "", kind) for kind in ("numbers", "strings", "members")),
]


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize(("side", "mode", "kind"), SIDES)
async def test_values_of_arguments_do_not_block_the_loop(
    side: str, mode: str, kind: str, tmp_path: Path
) -> None:
    result = await measure_call(tmp_path, side, repeat_value(MANY_VALUES[kind]), mode)

    blocked = b"guardrail_blocked" in result.reply.raw
    if side == "stream":
        assert blocked or b'"guard_unavailable"' in result.reply.raw
    else:
        assert (result.reply.status, blocked) == ((200, False) if mode else (400, True))
    assert result.cpu_s < MAX_CPU_S
    assert result.lag_s < LAG_S


@pytest.mark.parametrize("side", ["input", "output", "stream"])
@pytest.mark.parametrize(("values", "passes"), [(900, True), (1100, False)])
async def test_lower_bound_of_values_reads_fewer(
    values: int, passes: bool, side: str, tmp_path: Path
) -> None:
    arguments = repeat_value("1,", 2 * values)
    result = await measure_call(tmp_path, side, arguments, body_values=1000)

    assert (b"guardrail_blocked" not in result.reply.raw) == passes
