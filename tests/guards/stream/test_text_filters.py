"""What is read chunk by chunk says no more than its first value, in bounded memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

from proxy.guards.stream.text_filters import MOST_PLACES, FirstValues, acting, says_more
from proxy.guards.text.walk import Text
from tests.for_each import for_each
from tests.guards.doubles import rule, stream_inspector, tallies
from tests.guards.stream import frames as made


def text(written: str) -> Text:
    return Text(("x",), written, "other")


def always(_: Text) -> bool:
    return True


def never(_: Text) -> bool:
    return False


def test_the_first_value_of_a_place_passes_and_no_other() -> None:
    firsts = FirstValues()

    assert firsts.passes(("provider",), text("one"), never)
    assert not firsts.passes(("provider",), text("two"), never)
    assert firsts.passes(("provider",), text("one"), never)
    assert firsts.passes(("other",), text("two"), never)
    assert firsts.passes((0, ("provider",)), text("two"), never)


def test_the_same_again_passes_where_it_says_no_more() -> None:
    firsts = FirstValues()
    asked: list[Text] = []

    def says_more(again: Text) -> bool:
        asked.append(again)
        return True

    assert firsts.passes(("n",), text("42"), says_more)
    assert asked == []
    assert [firsts.passes(("n",), text("42"), says_more) for _ in range(3)] == [False] * 3
    assert asked == [text("42")]


@for_each("written", ["42", "4242", "x42", "sec ", "a secret "])
def test_what_is_said_again_and_again_is_looked_at(written: str) -> None:
    acts = acting(tallies(rule("42424242", action="mask"), rule("secret", action="flag")), text(""))

    assert says_more(written, acts) is written.startswith("42")
    assert not says_more(written, acting(tallies(rule("42424242", action="flag")), text("")))
    assert not says_more(written, acting(tallies(rule(written, unbounded=True)), text("")))


def test_there_are_so_many_places_and_long_names_are_not_kept() -> None:
    firsts = FirstValues()
    value = text("x" * 100_000)
    tracemalloc.start()
    try:
        passed = [firsts.passes((f"{n}{value}",), value, always) for n in range(MOST_PLACES + 1)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert passed == [True] * MOST_PLACES + [False]
    assert held < 1024 * 1024


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
async def test_a_guard_that_only_flags_says_what_it_has_not_read_together(
    chunks: list[dict[str, Any]], verdict: str
) -> None:
    watching = stream_inspector(rule("secret", action="flag"))
    choice = {"index": 0, "delta": {"content": "all is well "}}
    docs = [{"choices": [choice], **beside} for beside in chunks]
    for frame in made.read(*docs):
        assert await watching.inspect(frame) == [frame]

    [result] = watching.results()
    assert result.verdict == verdict
