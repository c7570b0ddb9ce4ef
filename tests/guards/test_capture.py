"""Captured texts in spans: by policy, redacted and bounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.call.record import new_record
from proxy.fields.field_table import FIELDS
from proxy.guards.capture import CallCapture
from proxy.policy.compile.guards import compile_capture
from proxy.policy.schema import CaptureConfig
from proxy.types.guard import Capture, GuardRule
from tests.conftest import policies_for, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat,
    chat_events,
    legacy_completion,
    respond,
    response,
    stream,
)
from tests.for_each import for_each
from tests.guards.doubles import Broken
from tests.guards.stream import frames as made
from tests.telemetry.collector import Collector, attributes_of
from tests.test_pipeline import BEARER

EMAIL, TOKEN = "jane@example.com", "ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"
INPUT_MESSAGES, OUTPUT_MESSAGES = "gen_ai.input.messages", "gen_ai.output.messages"


async def traced(
    folder: Path,
    upstream: ScriptedUpstream,
    collector: Collector,
    capture: str,
    body: Json,
    script: Script,
) -> Json:
    """Make a call and return the attributes of its model call span."""
    upstream.answer_with(script)
    policies = f"{policies_for(upstream.url)}\npolicies:\n  default: {{match: all, {capture}}}\n"
    async with (
        running_proxy(folder / "p", policies, otlp_endpoint=collector.url) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        async with client.post("/v1/chat/completions", headers=BEARER, json=body) as response:
            await response.read()
        await proxy.sink.wait()
    return attributes_of(collector.named("chat "))


def question(*requests: str, **options: Any) -> Json:
    messages = [{"role": "system", "content": "Be brief."}]
    messages += [{"role": "user", "content": text} for text in requests]
    return {"model": "search-answers", "messages": messages, **options}


def texts(attribute: str) -> list[tuple[str, str]]:
    return [(load["role"], load["parts"][0]["content"]) for load in json.loads(attribute)]


HIPPO = "{guard: keywords, words: [hippo], action: mask}"


@pytest.mark.parametrize(
    ("rules", "prompt", "output"),
    [
        (f"input: [{HIPPO}]", None, None),
        (f"capture: {{share: 100%}}, input: [{HIPPO}]", "A [WORD]?", "A [WORD]."),
        ("capture: {share: 100%, fields: [output], max_chars: 5}", None, "A hip…"),
    ],
    ids=["no capture", "masking guard", "side and bound"],
)
async def test_policy_selects_captured_texts(
    rules: str,
    prompt: str | None,
    output: str | None,
    tmp_path: Path,
    upstream: ScriptedUpstream,
    collector: Collector,
) -> None:
    body, script = question("A hippo?"), respond(chat("A hippo."))

    span = await traced(tmp_path, upstream, collector, rules, body, script)

    names = (INPUT_MESSAGES, OUTPUT_MESSAGES)
    sent, received = (texts(span[name])[-1][1] if name in span else None for name in names)
    assert (sent, received) == (prompt, output)
    assert (b"Be brief" in b"".join(collector.bodies)) is (prompt is not None)


@pytest.mark.parametrize("streamed", [False, True])
async def test_captured_texts_are_redacted(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    parts = ("Write to ", "jane@exam", "ple.com", " soon.")
    script = stream(chat_events(*parts)) if streamed else respond(chat("".join(parts)))
    body = question(f"My token is {TOKEN}, my mail {EMAIL}", stream=streamed)

    span = await traced(tmp_path, upstream, collector, "capture: {share: 100%}", body, script)

    [system, user] = texts(span[INPUT_MESSAGES])
    assert system == ("system", "Be brief.")
    assert user[1].endswith("my mail [EMAIL]")
    assert texts(span[OUTPUT_MESSAGES]) == [("assistant", "Write to [EMAIL] soon.")]
    assert TOKEN.encode() not in b"".join(collector.bodies)
    assert EMAIL.encode() not in b"".join(collector.bodies)


@pytest.mark.parametrize("streamed", [False, True])
async def test_choice_with_an_invalid_index_is_captured(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    events = chat_events("a", "b") if streamed else [chat("ab")]
    for event in events:
        event["choices"] = [{**choice, "index": [0]} for choice in event["choices"]]
    script = stream(events) if streamed else respond(events[0])
    body = question("Hi", stream=streamed)

    span = await traced(tmp_path, upstream, collector, "capture: {share: 100%}", body, script)

    assert texts(span[OUTPUT_MESSAGES]) == [("assistant", "ab")]


def test_calls_are_sampled_by_trace() -> None:
    record = new_record()

    drawn = [replace(record.ids, trace_id=f"{d}{'0' * 31}") for d in "0123456789abcdef"]

    records = [replace(record, ids=ids, sample_id="") for ids in drawn]
    assert [item.is_sampled(0.25) for item in records] == [True] * 4 + [False] * 12


def capturing(*rules: GuardRule, maximum: int = 100) -> CallCapture:
    request = {"messages": [{"role": "user", "content": "Where?"}]}
    return CallCapture(Capture(1.0, max_chars=maximum), rules, request, lambda: 0.0)


def test_text_that_cannot_be_redacted_is_withheld() -> None:
    captured = capturing(GuardRule("mask", Broken(), action="mask")).build_captured_texts()

    assert [text.text for text in captured.prompt] == ["[WITHHELD]"]


def test_capture_of_endless_response_is_bounded() -> None:
    stored = capturing()
    [frame] = made.text_frames(made.part(), ["x" * 100])
    for _ in range(10_000):
        stored.feed(frame)

    assert sum(len(part) for parts in stored._responses.values() for part in parts) <= 9000
    assert [len(text.text) for text in stored.build_captured_texts().response] == [101]


SHAPES: dict[str, Callable[[str], Any]] = {
    "string": lambda text: text,
    "strings": lambda text: [text, "Next."],
    "nested strings": lambda text: [[text]],
    "object": lambda text: {"content": text},
    "content": lambda text: [{"role": "user", "content": text}],
    "parts": lambda text: [{"role": "user", "content": [{"type": "text", "text": text}]}],
    "nothing": lambda text: None,
}


@for_each("name", FIELDS)
@for_each("shape", SHAPES)
def test_fields_of_any_shape_are_redacted(shape: str, name: str) -> None:
    body = {"model": "m", name: SHAPES[shape](f"Hi {TOKEN}")}
    capture = compile_capture(CaptureConfig.model_validate({"share": "100%"}))
    stored = CallCapture(capture, capture.redact, body, lambda: 0.0)

    output = "".join(text.text for text in stored.build_captured_texts().prompt)

    assert TOKEN not in output
    if name in ("input", "prompt") and shape in ("string", "strings", "content"):
        assert output.startswith("Hi [")


@pytest.mark.parametrize(
    ("path", "reply"),
    [
        ("/v1/responses", response()),
        ("/v1/embeddings", {"object": "list", "data": [], "model": "m"}),
        ("/v1/completions", legacy_completion()),
    ],
)
async def test_string_input_is_captured_at_every_endpoint(
    path: str, reply: Json, tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    upstream.answer_with(respond(reply))
    capture = "policies:\n  default: {match: all, capture: {share: 100%}}\n"
    body = {"model": "support-chat", "prompt" if path.endswith("completions") else "input": "Hi"}
    async with (
        running_proxy(
            tmp_path / "p", f"{policies_for(upstream.url)}\n{capture}", otlp_endpoint=collector.url
        ) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        async with client.post(path, headers=BEARER, json=body) as replied:
            assert replied.status == 200, await replied.text()
        await proxy.sink.wait()

    attributes = map(attributes_of, collector.spans)
    [request] = [item[INPUT_MESSAGES] for item in attributes if INPUT_MESSAGES in item]
    assert texts(request) == [("user", "Hi")]


def test_choices_and_calls_are_captured_separately() -> None:
    stored = capturing()
    call = {"id": "a", "function": {"name": "find", "arguments": '{"city": '}}
    rest = {"function": {"arguments": '"Oslo"}'}}
    deltas = [
        {"content": "a"},
        {"tool_calls": [{"index": 0, **call}]},
        {"content": "b"},
        {"tool_calls": [{"index": 0, **rest}]},
    ]
    docs: list[Any] = [{"choices": [{"index": 1, "delta": delta}]} for delta in deltas]
    for frame in made.read(*docs, {"choices": [{"index": 0, "delta": {"content": "c"}}]}):
        stored.feed(frame)

    answered = [text.text for text in stored.build_captured_texts().response]
    assert answered == ["ab", "find", '{"city": "Oslo"}', "c"]
