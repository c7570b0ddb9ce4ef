"""Chunks that go on as the one before them: what becomes of them is what becomes of any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import GuardBlocked
from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.stream.lane import Lane
from proxy.types import Chunk, Json
from proxy.types.guard import GuardResult, GuardRule
from tests.for_each import for_each
from tests.guardrails.doubles import Broken, Words, rule, tallies
from tests.guardrails.stream.test_filter import chunk

TEXTS = ["secret", "sec", "ret", "s", " ", "ok", "\u00e9", "secret" * 9, "data:x", ""]
CONTENT = st.sampled_from(TEXTS).map(lambda text: chunk({"content": text}))
OTHERS = st.sampled_from(
    [
        chunk({"role": "assistant", "content": "sec"}),
        chunk({"content": "ret"}, index=1),
        chunk({"content": "ret"}, index=True),
        chunk({"content": "ret"}, index="0"),  # type: ignore[arg-type]
        chunk({"content": "ret"}, finish="stop"),
        chunk({"content": "ret"}, obfuscation="se"),
        chunk({"content": "ret"}, system_fingerprint="sec ret"),
        chunk({"content": [{"type": "text", "text": "sec"}]}),
        chunk({"content": "ret", "reasoning": "sec"}),
        chunk({"content": None}),
        chunk({}),
        Chunk({"choices": [{"index": 0, "message": {"content": "sec"}}]}),
        Chunk({"choices": [{"index": 0, "text": "sec"}]}),
        Chunk({"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}),
        Chunk({"choices": [], "usage": {"total_tokens": 3}}),
        Chunk({"choices": [None]}),
        Chunk(None, last=True),
    ]
)
CHUNKS = st.lists(st.one_of(CONTENT, CONTENT, CONTENT, OTHERS), max_size=16)
RULES = st.lists(
    st.sampled_from(
        [
            rule("secret", action="mask"),
            rule("secret", action="flag", name="flags"),
            rule("secretsecret", action="block", name="blocks"),
            rule("ok", action="mask", shadow=True, name="shadows"),
            rule("ok", action="mask", unbounded=True, name="whole"),
            rule("ok", action="flag", fields=frozenset({"reasoning"}), name="narrow"),
            GuardRule("broken", Broken(), "mask", on_error="open"),
            GuardRule("long", Words(("secret" * 80,)), "mask"),
        ]
    ),
    min_size=1,
    max_size=3,
)


def shown(
    feed: Callable[[Chunk], Sequence[Chunk]], chunks: Sequence[Chunk]
) -> tuple[list[Chunk], str | None]:
    """Return what is shown of a stream, and why it stopped."""
    out: list[Chunk] = []
    try:
        for each in chunks:
            out += feed(each)
    except GuardBlocked as blocked:
        return out, repr(blocked)
    return out, None


def results(at_work: Sequence[RuleTally]) -> list[GuardResult]:
    return [tally.result() for tally in at_work]


@given(RULES, CHUNKS)
def test_a_stream_is_shown_alike_where_chunks_go_on_at_once(
    rules: list[GuardRule], chunks: list[Chunk]
) -> None:
    plain, quick = tallies(*rules), tallies(*rules)
    plainly, quickly = StreamFilter.under(plain), StreamFilter.under(quick)

    def either(each: Chunk) -> Sequence[Chunk]:
        released = quickly.go_on(each)
        return quickly.feed(each) if released is None else released

    assert shown(either, chunks) == shown(plainly.feed, chunks)
    assert results(quick) == results(plain)


def test_a_chunk_that_goes_on_as_the_last_one_is_taken_at_once() -> None:
    filter_of_stream = StreamFilter.under(tallies(rule("secret", action="mask")))
    first, second = chunk({"role": "assistant", "content": "a"}), chunk({"content": "b"})

    assert filter_of_stream.go_on(first) is None
    filter_of_stream.feed(first)
    assert filter_of_stream.go_on(second) == []


@for_each(
    "data",
    [
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "id": "c2"},
        {"choices": [{"index": 1, "delta": {"content": "a"}}], "id": "c1"},
        {"choices": [{"index": 0, "delta": {"content": "a", "role": "x"}}], "id": "c1"},
        {"choices": [{"index": 0, "delta": {"content": 1}}], "id": "c1"},
        {"choices": [{"index": 0, "delta": {"refusal": "a"}}], "id": "c1"},
        {"choices": [{"index": 0}], "id": "c1"},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {}}], "id": "c1"},
        {"choices": [{"index": 0, "delta": {"content": "a"}}] * 2, "id": "c1"},
        {"choices": {"0": {"delta": {"content": "a"}}}, "id": "c1"},
        {"id": "c1"},
    ],
)
def test_what_differs_in_more_than_its_text_has_no_text_here(data: Any) -> None:
    stream: Any = None
    known: Json = {"choices": [{"index": 0, "delta": {"content": "a"}}], "id": "c1"}

    lane = Lane.of(known, stream)

    assert lane is not None
    assert lane.text(known) == "a"
    assert lane.text(data) == ""
