"""Portkey's ``POST /completions``, parameter by parameter and field by field."""

from __future__ import annotations

from dataclasses import replace

from aiohttp import ClientSession

from tests.conformance.checking import (
    COMPLETION,
    FINGERPRINT,
    Document,
    Parameter,
    biases,
    boolean,
    integer,
    mapping,
    number,
    prompts,
    stops,
    text,
    wrong_parameters,
)
from tests.conftest import KEY
from tests.doubles import ScriptedUpstream

DOCUMENT = Document(
    path="/v1/completions",
    credential={"x-portkey-api-key": KEY, "x-portkey-virtual-key": "via-portkey"},
    deployment="via-portkey",
    required={"model": "m", "prompt": "p"},
    parameters=[
        Parameter("model", [], [1, True, ["m"], {}], null=False),
        prompts(means="<|endoftext|>"),
        integer("best_of"),
        boolean("echo"),
        number("frequency_penalty", -2, 2),
        biases(),
        Parameter("logprobs", [0, 5], [6, -1, 1.5, True, "1"]),
        integer("max_tokens"),
        integer("n"),
        number("presence_penalty", -2, 2),
        integer("seed"),
        stops(),
        Parameter("stream", [False], [1, "true", []]),
        mapping("stream_options", {"include_usage": True}, beside={"stream": True}),
        text("suffix"),
        number("temperature", 0, 2),
        number("top_p", 0, 1),
        text("user"),
    ],
    answer={**COMPLETION, "system_fingerprint": lambda value: value == FINGERPRINT},
)


async def test_best_of_rules(client: ClientSession, upstream: ScriptedUpstream) -> None:
    parameter = Parameter("best_of", [2, 3], [1], null=False, beside={"n": 2})
    streamed = Parameter("best_of", [1], [2], null=False, beside={"stream": True})
    document = replace(DOCUMENT, parameters=[parameter, streamed])

    problems = await wrong_parameters(document, client, upstream)

    assert [problem for problem in problems if "None" not in problem] == []
