"""Only the first value of a place passes if documents are inspected one by one."""

from __future__ import annotations

import tracemalloc
from typing import Any

from proxy.guards.stream.text_filters import MAX_PLACES, FirstValues, acting, has_repeated_finding
from proxy.guards.text.walk import Text
from tests.for_each import for_each
from tests.guards.doubles import rule, stream_inspector, tallies
from tests.guards.stream import frames as made


def text(written: str) -> Text:
    return Text(("x",), written, "other")


def has_finding() -> bool:
    return True


def has_none() -> bool:
    return False


def test_only_first_value_of_a_place_passes() -> None:
    firsts = FirstValues()

    assert firsts.passes(("provider",), "one", has_none)
    assert not firsts.passes(("provider",), "two", has_none)
    assert firsts.passes(("provider",), "one", has_none)
    assert firsts.passes(("other",), "two", has_none)
    assert firsts.passes((0, ("provider",)), "two", has_none)


def test_equal_value_passes_unless_it_has_a_finding_when_repeated() -> None:
    firsts = FirstValues()
    inspections: list[str] = []

    def inspect() -> bool:
        inspections.append("42")
        return True

    assert firsts.passes(("n",), "42", inspect)
    assert inspections == []
    assert [firsts.passes(("n",), "42", inspect) for _ in range(3)] == [False] * 3
    assert len(inspections) == 1


@for_each("written", ["42", "4242", "x42", "sec ", "a secret "])
def test_repeated_text_is_inspected(written: str) -> None:
    acts = acting(tallies(rule("42424242", action="mask"), rule("secret", action="flag")), text(""))

    assert has_repeated_finding(written, acts) is written.startswith("42")
    assert not has_repeated_finding(
        written, acting(tallies(rule("42424242", action="flag")), text(""))
    )
    assert not has_repeated_finding(
        written, acting(tallies(rule(written, unbounded=True)), text(""))
    )


def test_number_and_size_of_places_are_bounded() -> None:
    firsts = FirstValues()
    value = "x" * 100_000
    tracemalloc.start()
    try:
        passed_value = [
            firsts.passes((f"{n}{value}",), value, has_finding) for n in range(MAX_PLACES + 1)
        ]
        held_count, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert passed_value == [True] * MAX_PLACES + [False]
    assert held_count < 1024 * 1024


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
async def test_flagging_guard_reports_texts_that_were_not_inspected_together(
    chunks: list[dict[str, Any]], verdict: str
) -> None:
    watching = stream_inspector(rule("secret", action="flag"))
    choice = {"index": 0, "delta": {"content": "all is well "}}
    docs = [{"choices": [choice], **extra} for extra in chunks]
    for frame in made.read(*docs):
        assert await watching.inspect(frame) == [frame]

    [result] = watching.results()
    assert result.verdict == verdict
