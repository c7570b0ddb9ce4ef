"""Fireworks' ``POST /completions``, parameter by parameter and field by field."""

from __future__ import annotations

from aiohttp import ClientSession

from tests.conformance.checking import (
    BEARER,
    COMPLETION,
    Document,
    Parameter,
    boolean,
    integer,
    is_usage,
    mapping,
    number,
    prompts,
    stops,
    streamed_answer,
    text,
    texts,
    texts_of,
    wrong_fields,
)
from tests.doubles import ScriptedUpstream

FORMAT = {"type": "json_object", "schema": {"type": "object"}}
DOCUMENT = Document(
    path="/inference/v1/completions",
    credential=BEARER,
    deployment="via-fireworks",
    required={"model": "m", "prompt": "p"},
    parameters=[
        Parameter("model", [], [1, True, ["m"], {}], null=False),
        prompts(),
        Parameter("context_length_exceeded_behavior", ["truncate", "error"], ["other", 1, True]),
        boolean("echo"),
        number("frequency_penalty", -2, 2),
        boolean("ignore_eos"),
        texts("images"),
        Parameter("logprobs", [0, 1, 5], [-1, 6, 1.5, "1", []]),
        integer("max_tokens", 1),
        number("mirostat_lr"),
        number("mirostat_target"),
        integer("n", 1, 128),
        number("presence_penalty", -2, 2),
        number("repetition_penalty", 0, 2),
        mapping("response_format", {"type": "json_object"}),
        Parameter("response_format", [FORMAT], [1, "json_object", []]),
        stops(),
        Parameter("stream", [False], [1, "true", []]),
        number("temperature", 0, 2),
        integer("top_k", 1, 128),
        number("top_p", 0, 1),
        text("user"),
    ],
    answer=COMPLETION,
)


async def test_stream_fields_and_usage(client: ClientSession, upstream: ScriptedUpstream) -> None:
    events, ended = await streamed_answer(DOCUMENT, client, upstream)

    assert ended
    assert texts_of(events) == " Paris."
    assert is_usage(events[-1]["usage"])
    assert [wrong_fields(DOCUMENT, event, absent=["usage"]) for event in events] == [[]] * len(
        events
    )
