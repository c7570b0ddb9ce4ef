"""All texts of requests and responses are found, in every field of every dialect."""

from __future__ import annotations

import asyncio
import base64
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

from proxy.dialects import DIALECTS, RequestContext, parse_request_head, read_call
from proxy.fields.checks import FieldType
from proxy.guards.text.documents import (
    VALUES_PER_STEP,
    collect_request_texts,
    collect_response_texts,
    collect_texts,
    collect_texts_in_steps,
)
from proxy.guards.text.members import is_ignored_member, list_unshown_logprob_texts
from proxy.guards.text.normalize import build_views
from proxy.guards.text.walk import (
    KIND_BY_FIELD,
    KIND_BY_MEMBER,
    TEXT_KINDS,
    MemberName,
    Opaque,
    Text,
    walk_passthrough_request,
    walk_request,
    walk_response,
)
from tests.for_each import for_each
from tests.guards.growth import LINEAR, TIMES, grown, lines

MARK = "forbidden"
SHAPES: list[Any] = [
    MARK,
    [MARK],
    {MARK: 1},
    {"any": MARK},
    {"any": {"deep": [{"er": MARK}]}},
    [{"any": MARK}],
    [{"role": "user", "content": MARK}],
    [{"role": MARK, "content": "x"}],
    [{"role": "user", "content": [{"type": "text", "text": MARK}]}],
    [{"role": "user", "content": [MARK]}],
    [{"role": "user", "content": [{"text": MARK}]}],
    [{"role": "user", "name": MARK, "content": "x"}],
    [{"role": "assistant", "refusal": MARK}],
    [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": MARK}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"arguments": '{"a": ["forbidden"]}'}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"arguments": '{"forbidden": 1}'}}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"arguments": {"a": MARK}}}]}],
    [{"role": "assistant", "function_call": {"name": "f", "arguments": MARK}}],
    [{"role": "user", "content": "x", "unknown": {"at": [MARK]}}],
    [{"type": "function", "function": {"name": "f", "description": MARK}}],
    [{"type": "function", "function": {"parameters": {"properties": {MARK: {}}}}}],
    [{"type": "function", "function": {"parameters": {"enum": ["x", MARK]}}}],
    [{"type": "function_call", "name": MARK, "arguments": "{}"}],
    [{"type": "function_call", "name": "f", "arguments": '{"a": ["forbidden"]}'}],
    [{"type": "function_call_output", "output": [{"type": "input_text", "text": MARK}]}],
    [{"type": "reasoning", "summary": [{"type": "summary_text", "text": MARK}]}],
    [{"type": "mcp_call", "output": MARK}],
]
MINIMAL: dict[str, dict[str, Any]] = {
    "completions": {"model": "m", "prompt": "p"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "p"}]},
    "responses": {"model": "m", "input": "p"},
    "embeddings": {"model": "m", "input": "p"},
}
PATHS = {
    ("openai", "completions"): "/v1/completions",
    ("openai", "chat"): "/v1/chat/completions",
    ("openai", "responses"): "/v1/responses",
    ("openai", "embeddings"): "/v1/embeddings",
    ("fireworks", "completions"): "/inference/v1/completions",
    ("fireworks", "chat"): "/inference/v1/chat/completions",
    ("scale", "completions"): "/v4/beta/completions",
    ("scale", "chat"): "/v4/beta/chat/completions",
    ("multimodel", "completions"): "/v1/completion",
    ("enkrypt", "completions"): "/ai-proxy/completions",
    ("enkrypt", "chat"): "/ai-proxy/chat/completions",
    ("portkey", "completions"): "/v1/completions",
    ("portkey", "chat"): "/v1/chat/completions",
    ("portkey", "responses"): "/v1/responses",
    ("portkey", "embeddings"): "/v1/embeddings",
}


def fields() -> Iterator[tuple[str, str, str, FieldType]]:
    for dialect in DIALECTS.values():
        for endpoint, table in dialect.fields.items():
            if (dialect.name, endpoint) in PATHS:
                yield from ((dialect.name, endpoint, name, item) for name, item in table.items())


def chat_body(dialect: str, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"x-portkey-api-key": "k"} if dialect == "portkey" else {}
    head = parse_request_head("POST", PATHS[dialect, endpoint], headers, RequestContext("r"))
    assert (head.dialect, head.endpoint) == (dialect, endpoint)
    return read_call(head, body).body


def contains_mark(body: dict[str, Any]) -> bool:
    return any(MARK in text.text for text in collect_request_texts(body).texts)


def test_texts_have_kinds_and_roles() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
    body = {
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "name": "ann", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ],
        "user": "u1",
        "stop": ["END"],
        "metadata": {"team": "support"},
    }

    path = ("messages", 2, "tool_calls", 0, "function")
    assert collect_request_texts(body).texts == (
        Text(("messages", 0, "content"), "be good", "content", "system"),
        Text(("messages", 1, "name"), "ann", "name", "user"),
        Text(("messages", 1, "content", 0, "text"), "hi", "content", "user"),
        Text((*path, "name"), "f", "tool", "assistant"),
        Text((*path, "arguments", 0), "a", "arguments", "assistant", in_json=True),
        Text((*path, "arguments", 1), "b", "arguments", "assistant", in_json=True),
        Text(("user",), "u1", "user"),
        Text(("stop", 0), "END", "stop"),
        Text(("metadata", MemberName("team")), "team", "metadata"),
        Text(("metadata", "team"), "support", "metadata"),
    )


def test_kinds_are_a_closed_set() -> None:
    assert {*KIND_BY_FIELD.values(), *KIND_BY_MEMBER.values()} <= TEXT_KINDS


@for_each(
    ("body", "opaque"),
    [
        ({"prompt": [1, 2]}, Opaque(("prompt",), "tokens")),
        ({"prompt": [[1, 2], [3]]}, Opaque(("prompt", 0), "tokens")),
        ({"images": ["https://example.test/cat"]}, Opaque(("images",), "images")),
        ({"messages": [{"content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
            Opaque(("messages", 0, "content", 0, "image_url"), "image_url")),
        ({"messages": [{"content": [{"source": {"media_type": "image/png", "data": "AA"}}]}]},
            Opaque(("messages", 0, "content", 0, "source"), "file")),
        ({"messages": [{"role": "tool", "content": [{"mimeType": "image/png", "data": "AA"}]}]},
            Opaque(("messages", 0, "content", 0), "file")),
        ({"x": {"mediaType": "audio/wav", "bytes": [1]}}, Opaque(("x",), "file")),
        ({"x": {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}},
            Opaque(("x", "source"), "file")),
    ],
    ids=str,
)  # fmt: skip
def test_opaque_content_is_reported(body: dict[str, Any], opaque: Opaque) -> None:
    assert opaque in collect_request_texts(body).opaque


@for_each(
    "body",
    [
        {"stop_token_ids": [1, 2]},
        {"tools": [{"function": {"parameters": {"properties": {"file": {"enum": [1, 2]}}}}}]},
        {"logit_bias": {"50256": -100}, "seed": 1, "n": 2},
        {"audio": {"voice": "alloy"}},
        {"metadata": {"image": "x"}},
        {"metadata": {"media_type": "image/png", "data": "AA"}},
        {"x": {"type": "text", "source": {"title": "an article"}}},
        {"x": {"type": ["image"], "source": "where it is from"}},
        {"x": {"type": "image", "data": "AAAA"}},
        {"x": {"media_type": "text/plain", "text": "all is well"}},
        {"prompt": f"data:;base64, {MARK}"},
        {"messages": [{"role": "user", "content": "data:image/png;base64,iVBORw0KGgo="}]},
    ],
    ids=str,
)
def test_readable_content_is_not_opaque(body: dict[str, Any]) -> None:
    assert collect_request_texts(body).opaque == ()


def url(kind: str, payload: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(payload).decode()}"


PICTURE = b"\x89PNG\r\n\x1a\n\x00\x00"
NOT_DATA = [
    f"data:;base64, and then {MARK}", f"data:image/png;base64,AAAA {MARK}",
    f"data:image/png;base64,AAAA={MARK}=", f"data:text/plain;{MARK};base64,AAAA",
]  # fmt: skip
TEXTS = [
    url("text/plain", MARK.encode()),
    url("text/html;charset=utf-16", MARK.encode("utf-16")),
    url("text/plain", b"\xff\x01" + MARK.encode()),
    url("application/json", f'{{"a": "{MARK}"}}'.encode()),
    url("image/svg+xml", f"<svg>{MARK}</svg>".encode()),
]


@for_each("source", [*NOT_DATA, *TEXTS])
@for_each(
    "place",
    [
        lambda source: {"messages": [{"role": "user", "content": source}]},
        lambda source: {"messages": [{"content": [{"image_url": {"url": source}}]}]},
        lambda source: {"messages": [{"content": [{"file": {"file_data": source}}]}]},
        lambda source: {"unknown": source},
    ],
)
def test_only_opaque_data_is_skipped(source: str, place: Callable[[str], dict[str, Any]]) -> None:
    assert contains_mark(place(source))


@for_each("source", [*NOT_DATA, url("image/png", PICTURE + MARK.encode())])
@for_each(
    "message",
    [
        lambda source: {"content": source},
        lambda source: {"content": [{"image_url": {"url": source}}]},
        lambda source: {"audio": {"data": source}},
    ],
)
def test_response_data_is_inspected(source: str, message: Callable[[str], dict[str, Any]]) -> None:
    texts = collect_response_texts({"choices": [{"message": message(source)}]}).texts

    assert source in {text.text for text in texts}


@for_each(
    "answer",
    [
        {"choices": [{"message": {"tool_calls": [{"function": {"arguments": {"id": MARK}}}]}}]},
        {"choices": [{"message": {"content": [{"model": MARK, "index": MARK}]}}]},
        {"choices": [{"usage": MARK, "object": MARK}]}, {"choices": [{"finish_reason": MARK}]},
        {"choices": [{"index": MARK}]}, {"id": {"a": MARK}}, {"created": MARK},
        {"usage": {"note": MARK}}, {"usage": {MARK: 1}},
        {"usage": {"prompt_tokens_details": {"note": MARK}}}, {"data": [{"embedding": [MARK]}]},
        {"data": [{"embedding": f"{MARK}, not a vector"}]},
        {"data": [{"embedding": f"{MARK}AAA"}]},
        {"data": [{"embedding": f"data:image/{MARK};base64,iVBORw0KGgo="}]},
        {"data": [{"embedding": base64.b64encode(f"it is {MARK}".encode()).decode()}]},
        {"unknown": [{"id": MARK}]},
    ],
    ids=str,
)  # fmt: skip
def test_members_are_skipped_only_by_place_and_type(answer: dict[str, Any]) -> None:
    texts = collect_response_texts(answer).texts
    read = {view.cased for text in texts for view in build_views(text.text)}
    assert [text for text in read if MARK in text]


async def test_large_body_is_read_in_steps() -> None:
    body = {"messages": [{"role": "user", "content": "a"}, {}] * 3000, "n": 1}
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    read = await collect_texts_in_steps(walk_request(body))
    task.cancel()

    assert read == collect_request_texts(body)
    assert turns > len(read.texts) // VALUES_PER_STEP


def test_walk_yields_between_values() -> None:
    walk = walk_request({"messages": [{}] * 100_000})

    assert lines(lambda: next(walk)) < 100


def test_log_probs_are_read_in_linear_time() -> None:
    def read(size: int) -> int:
        tokens = [{"token": f"a{n}", "top_logprobs": [{"token": f"b{n}"}]} for n in range(size)]
        return lines(lambda: list_unshown_logprob_texts({"content": tokens}, ""))

    def read_names(size: int) -> None:
        names = [{f"b{n}": 0} for n in range(size)]
        list_unshown_logprob_texts({"tokens": [*map(str, range(size))], "top_logprobs": names}, "")

    assert read(2000) < 3 * read(1000)
    assert grown(read_names, 1000, 1000 * TIMES) < LINEAR


ANSWERS: list[dict[str, Any]] = [
    {"choices": [{"text": MARK}]},
    {"choices": [{"text": "x"}, {"text": MARK}]},
    {"choices": [{"message": {"content": MARK}}]},
    {"choices": [{"message": {"content": [{"type": "text", "text": MARK}]}}]},
    {"choices": [{"message": {"refusal": MARK}}]},
    {"choices": [{"message": {"reasoning_content": MARK}}]},
    {"choices": [{"message": {"tool_calls": [{"function": {"arguments": '{"a": "forbidden"}'}}]}}]},
    {"choices": [{"message": {"function_call": {"name": MARK}}}]},
    {"choices": [{"message": {"audio": {"id": "a", "data": "AA", "transcript": MARK}}}]},
    {"choices": [{"delta": {"content": MARK}}]},
    {"choices": [{"text": "x", "logprobs": {"tokens": ["for", "bidden"]}}]},
    {"choices": [{"text": "x", "logprobs": {"tokens": ["x"], "top_logprobs": [{MARK: -1}]}}]},
    {"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{"token": MARK}]}}]},
    {"choices": [{"logprobs": {"content": [{"token": "x", "top_logprobs": [{"token": MARK}]}]}}]},
    {"choices": [{"logprobs": {"refusal": [{"token": MARK}]}}]},
    {"choices": [{"unknown": {MARK: 1}}]},
    {"choices": [], "unknown": [MARK]},
    {"choices": [], MARK: 1},
    {"error": {"message": MARK}},
]


@for_each("answer", ANSWERS, ids=str)
def test_every_text_of_a_response_is_found(answer: dict[str, Any]) -> None:
    head = {"id": "1", "model": "m", "usage": {"total_tokens": 3}}
    texts = collect_response_texts({**head, **answer}).texts

    assert [text for text in texts if MARK in text.text]
    assert all(text.role == "assistant" for text in texts)


def test_tokens_of_the_text_are_not_inspected_twice() -> None:
    choice = {"text": "a cat", "logprobs": {"tokens": ["a", " cat"], "top_logprobs": [{"a": -1}]}}

    assert [text.text for text in collect_response_texts({"choices": [choice]}).texts] == ["a cat"]


def test_metadata_of_a_response_is_no_text() -> None:
    full_value = {"message": {"role": "assistant", "content": "Hi", "annotations": []}}
    part = {"delta": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}

    for choice in (full_value, part):
        texts = collect_response_texts({"id": "1", "choices": [{"index": 0, **choice}]}).texts
        assert [text.text for text in texts] == ["Hi"]


def test_depth_is_unbounded() -> None:
    deep: Any = MARK
    for _ in range(5 * sys.getrecursionlimit()):
        deep = [deep]

    assert len(collect_response_texts({"error": deep}).texts) == 1
    assert MARK in list_unshown_logprob_texts(deep, "")


FILTER = "content_filter_results"
VECTOR = base64.b64encode(struct.pack("<64f", *(n / 7 - 3 for n in range(64)))).decode()


@for_each(
    ("level", "name", "value", "silent"),
    [
        ((), "id", "chatcmpl-1", True),
        ((), "id", {"a": "b"}, False),
        ((), "usage", {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}, True),
        ((), "usage", {"prompt_tokens": "1"}, False),
        ((), "usage", {"prompt_tokens_details": {"prompt_tokens": {"cost": 1}}}, False),
        (("choices",), "finish_reason", "stop", True),
        (("choices",), "finish_reason", "anything", False),
        (("choices",), "id", "x", False),
        (("choices",), FILTER, {"hate": {"filtered": False, "severity": "safe"}}, True),
        (("choices",), FILTER, {"jailbreak": {"filtered": True, "detected": True}}, True),
        (("choices",), FILTER, {}, True),
        (("choices",), FILTER, None, True),
        (("choices",), FILTER, 4111111111111111, False),
        (("choices",), FILTER, {"hate": {"severity": "call 4111111111111111"}}, False),
        (("choices",), FILTER, {"hate": {"severity": ["safe"]}}, False),
        (("choices",), FILTER, {"hate": {"filtered": 1}}, False),
        (("choices",), FILTER, {"hate": {"other": True}}, False),
        (("choices",), FILTER, {"my word": {"filtered": True}}, False),
        (("choices",), FILTER, {"protected_material_code": {"citation": {"URL": "x"}}}, False),
        ((), FILTER, {}, False),
        (("choices", "message"), "index", 1, False),
        (("choices", "delta", "tool_calls"), "id", "call_1", True),
        (("data",), "embedding", [0.5, 1], True),
        (("data",), "embedding", VECTOR, True),
        (("data",), "embedding", ["x"], False),
    ],
)
def test_member_is_skipped_by_place_and_value(
    level: tuple[str, ...], name: str, value: Any, silent: bool
) -> None:
    assert is_ignored_member(level, name, value) is silent


@for_each(
    ("logprobs", "output", "other_names"),
    [
        (None, "a", set()),
        ({"content": [{"token": "a", "logprob": -1, "bytes": [97]}]}, "a", set()),
        ({"content": [{"token": "\\xc3", "bytes": [195]}, {"token": "\\xa9", "bytes": [169]}]},
         "é", {"\\xc3\\xa9"}),
        ({"content": [{"token": "a", "bytes": [98]}]}, "a", {"b"}),
        ({"content": [{"token": "a", "bytes": [98, "x", 300]}]}, "a", {"b", "x"}),
        ({"content": [{"token": "a", "bytes": None, "logprob": None}]}, "a", set()),
        ({"tokens": ["a"], "token_logprobs": [-1], "text_offset": [0],
          "top_logprobs": [{"a": -1, "b": -2}]}, "a", {"b"}),
        ({"tokens": "ab"}, "c", {"ab"}),
        ("ab", "", {"ab"}),
    ],
)  # fmt: skip
def test_logprobs_that_spell_other_text_are_found(
    logprobs: Any, output: str, other_names: set[str]
) -> None:
    assert {*list_unshown_logprob_texts(logprobs, output)} - {""} == other_names


def test_unknown_request_text_has_the_role_user() -> None:
    body = {
        "model": "rerank-1",
        "query": "who",
        "documents": ["one", {"text": "two", "odd": {"title": "three"}}],
        "top_n": 3,
    }

    texts = collect_texts(walk_passthrough_request(body)).texts

    results = {text.text: (text.kind, text.role) for text in texts}
    assert {"who", "one", "two", "three", "odd", "title"} <= results.keys()
    assert {results[text] for text in ("who", "one", "two", "three")} == {("content", "user")}
    assert "rerank-1" not in results


def test_unknown_response_text_has_the_role_assistant() -> None:
    data = {"id": "a", "text": "heard", "segments": [{"text": "seen"}], "": ["item"]}

    texts = collect_texts(walk_response(data, unknown_kind="content")).texts

    results = {text.text: (text.kind, text.role) for text in texts}
    assert {results[text] for text in ("heard", "seen", "item")} == {("content", "assistant")}
