"""Only the first value of a place passes if documents are inspected one by one."""

from __future__ import annotations

import tracemalloc
from typing import Any

from proxy.guards.stream.texts import MAX_PLACES, JoinableTexts, RuleFilters
from proxy.guards.text.walk import Text
from tests.for_each import for_each
from tests.guards.doubles import rule, stream_inspector, tallies
from tests.guards.stream import frames as made


def test_number_and_size_of_places_are_bounded() -> None:
    texts, value = JoinableTexts(RuleFilters(tallies(rule("absent", action="mask")))), "x" * 10_000
    tracemalloc.start()
    try:
        omitted = [
            texts.omits(made.chat({name: value}), Text((name,), value, "other"))
            for name in (f"{number}{value}" for number in range(MAX_PLACES + 1))
        ]
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert omitted == [False] * MAX_PLACES + [True]
    assert held_bytes < 1024 * 1024


@for_each(
    ("chunks", "verdict"),
    [
        ([{"x": "sec"}, {"x": "ret"}], "not_applicable"),
        ([{"x": {"y": ["sec"]}}, {"x": {"y": ["ret"]}}], "not_applicable"),
        ([{"provider": "openai"}, {"provider": "openai"}], "passed"),
        ([{"x": "retsec"}, {"x": "retsec"}], "not_applicable"),
        ([{"x": "secret"}, {"x": "other"}], "flagged"),
        ([{"usage": {"completion_tokens": 1}}, {"usage": {"completion_tokens": 2}}], "passed"),
    ],
    ids=str,
)
async def test_flag_reports_uninspected_text(chunks: list[dict[str, Any]], verdict: str) -> None:
    watching = stream_inspector(rule("secret", action="flag"))
    choice = {"index": 0, "delta": {"content": "all is well "}}
    docs = [{"choices": [choice], **extra} for extra in chunks]
    for frame in made.read(*docs):
        assert await watching.inspect(frame) == [frame]

    [result] = watching.results()
    assert result.verdict == verdict
