"""What may be kept: whole answers in which nothing was amiss."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.cache.recorder import AnswerRecorder, choices_wanted
from proxy.types import CacheRule, Call, Chunk, Endpoint, RequestHead
from tests.doubles import chat, chat_events, legacy, legacy_events, usage
from tests.for_each import for_each

RULE = CacheRule(ttl=60, max_bytes=2000)
CALL = [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]
TOOLS = chat(choices=[{"index": 0, "message": {"tool_calls": CALL}, "finish_reason": "tool_calls"}])
VECTORS = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}], "usage": usage()}


def kept(*data: Any, rule: CacheRule = RULE, end: bool = True, wanted: int = 1) -> AnswerRecorder:
    keep = AnswerRecorder(rule, wanted)
    for each in data:
        keep.feed(Chunk(each))
    if end:
        keep.feed(Chunk(None, last=True))
    return keep


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ending(finish: Any, **more: Any) -> Any:
    return legacy(choices=[{"index": 0, "text": "x", "finish_reason": finish, **more}])


@for_each(
    "data",
    [
        [legacy()],
        [chat()],
        legacy_events("a", "b"),
        chat_events("a", "b", with_usage=False),
        [ending("length")],
        [VECTORS],
    ],
    ids=["legacy", "chat", "stream", "chat-stream", "length", "vectors"],
)
def test_a_whole_answer_is_kept(data: list[Any]) -> None:
    keep = kept(*data)

    assert keep.whole
    assert [orjson.loads(line) for line in keep.lines] == data


@for_each(
    "data",
    [
        [],
        [legacy(choices=[])],
        [ending(None)],
        legacy_events("a")[:1],
        [ending("stop"), {"choices": [{"index": 1, "text": "x", "finish_reason": None}]}],
        [ending("content_filter")],
        [ending("error")],
        [legacy(error={"message": "x"})],
        [TOOLS],
        [ending("tool_calls")],
        [ending("stop", tool_calls=CALL)],
        [{"choices": [{"index": 0, "delta": {"function_call": {"name": "f"}}}]}, chat()],
        [legacy(choices=[{"index": ["0"], "text": "x", "finish_reason": "stop"}])],
        [legacy("x" * 2000)],
        legacy_events(*["x" * 300] * 10),
    ],
    ids=[
        *("nothing", "no-choice", "unfinished", "cut", "one-unfinished", "filtered", "failed"),
        *(
            "error",
            "tools",
            "tool-end",
            "tool-beside",
            "function-delta",
            "index",
            "large",
            "large-stream",
        ),
    ],
)
def test_an_answer_in_which_something_is_amiss_is_not(data: list[Any]) -> None:
    assert not kept(*data).whole


def test_an_answer_without_its_last_chunk_is_not_whole() -> None:
    assert not kept(legacy(), end=False).whole


def test_tool_calls_are_kept_where_the_rule_says_so() -> None:
    assert kept(TOOLS, rule=CacheRule(ttl=60, tool_calls=True)).whole


def test_what_is_too_large_holds_no_memory_and_stays_too_large() -> None:
    keep = kept(*[legacy("x" * 300)] * 10, end=False)

    assert keep.oversize
    assert keep.lines == []
    assert keep.size < 4000


def test_bytes_are_kept_as_they_came_unless_they_have_several_lines() -> None:
    keep = AnswerRecorder(RULE)

    keep.feed(Chunk(legacy(), b'{ "choices": [] }'))
    keep.feed(Chunk({"a": 1}, b'{\n"a":1}', last=True))

    assert keep.lines == [b'{ "choices": [] }', b'{"a":1}']


@for_each(
    ("endpoint", "body", "wanted"),
    [
        ("chat", {}, 1),
        ("chat", {"n": 3}, 3),
        ("chat", {"n": None}, 1),
        ("completions", {"prompt": "a", "n": 2}, 2),
        ("completions", {"prompt": ["a", "b"], "n": 2}, 4),
        ("completions", {"prompt": [1, 2]}, 1),
        ("completions", {"prompt": [[1, 2], [3]]}, 2),
        ("embeddings", {"input": ["a", "b"]}, 2),
        ("embeddings", {"input": "a"}, 1),
    ],
)
def test_as_many_choices_are_wanted_as_were_asked_for(
    endpoint: Endpoint, body: Any, wanted: int
) -> None:
    assert choices_wanted(Call(RequestHead("openai", endpoint, "/", "req_1"), body), body) == wanted


def test_fewer_choices_or_vectors_than_wanted_are_not_kept() -> None:
    second = {**legacy(), "choices": [{"index": 1, "text": "x", "finish_reason": "stop"}]}

    assert not kept(legacy(), wanted=2).whole
    assert kept(legacy(), second, wanted=2).whole
    assert not kept(VECTORS, wanted=2).whole


@pytest.mark.parametrize(("holds", "whole"), [(True, True), (False, False)])
def test_an_answer_in_which_the_upstream_found_something_is_not_kept(
    holds: bool, whole: bool
) -> None:
    hooks = {"before_request_hooks": [{"id": "words", "verdict": holds}]}

    assert kept(legacy(hook_results=hooks)).whole is whole


def test_what_is_kept_takes_no_more_memory_than_it_counts() -> None:
    lines = 10_000
    keep = AnswerRecorder(replace(RULE, max_bytes=2**30), 1)
    chunk = Chunk(ending(None))
    before = resident()

    for _ in range(lines):
        keep.feed(chunk)

    assert len(keep.lines) == lines
    assert resident() - before < 2 * keep.size + 8 * 2**20
