"""Clients of chat and completions get recorded documents, and others made from events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from proxy.dialects.families import FAMILIES
from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.money.usage import Tokens
from proxy.types import Call
from proxy.types.events import (
    RESPONSE_END,
    Attach,
    Delta,
    Extension,
    FamilyName,
    Fault,
    Finish,
    Frame,
    Part,
    PartEnd,
    PartStart,
    ResponseStart,
    ToolCall,
    UsageReport,
)
from proxy.types.guard import GuardResult, GuardResults
from tests.dialects.chat.replay import call_for, documents, read_documents, written
from tests.doubles import Json, chat, chat_events, legacy_completion, legacy_events

MATCHES: GuardResults = [
    ("input", GuardResult("mails", "flagged", False, {"email": 1}, 1.0, 9, 1, 0.0, kind="pii")),
    ("output", GuardResult("quiet", "blocked", True, {"word": 1}, 1.0, 9, 1, 0.0, kind="keywords")),
]
TEXT, CALL = Part("text", 0), Part("arguments", 1)
TOKENS = Tokens(input=5, cached_input=2, output=3)
FOREIGN: Sequence[Frame] = [
    Frame((ResponseStart("msg_1", "claude", None),), "messages", {"type": "message_start"}, b"{}"),
    Frame((PartStart(TEXT),), "messages"),
    Frame((Delta(TEXT, "Pa"),), "messages"),
    Frame((Delta(TEXT, "ris"), Attach(TEXT, "logprobs", [{"token": "ris"}])), "messages"),
    Frame((PartEnd(TEXT),), "messages"),
    Frame((PartStart(CALL, ToolCall("call_1", "f")),), "messages"),
    Frame((Delta(CALL, "{}"),), "messages"),
    Frame((PartEnd(CALL),), "messages"),
    Frame((Finish(0, "tool_calls", "tool_use"), UsageReport(TOKENS, {})), "messages"),
    Frame((RESPONSE_END,), "messages", last=True),
]


def writer(call: Call, *, is_whole: bool = False, verdicts: GuardResults = ()) -> FamilyWriter:
    family: Any = call.head.endpoint
    return FAMILIES[family].writer(WriteOptions(call, is_whole, get_guard_results=lambda: verdicts))


def frames_of(docs: Sequence[Json], family: FamilyName = "chat") -> list[Frame]:
    return read_documents(family, [*docs, b"[DONE]"])[0]


def whole_document(frames: Sequence[Frame], call: Call, verdicts: GuardResults = ()) -> Json:
    document: Json = json.loads(
        b"".join(map(writer(call, is_whole=True, verdicts=verdicts).feed, frames))
    )
    return document


def documents_of(body: bytes) -> list[Json]:
    return [json.loads(document) for document in documents(body) if document != b"[DONE]"]


def test_bare_usage_chunk_is_sent_only_on_request() -> None:
    frames = frames_of(chat_events("x"))

    for wants_usage in (True, False):
        call = call_for(wants_usage=wants_usage)
        for sent_items in (frames, [frame._replace(raw=None) for frame in frames], FOREIGN):
            assert (b'"usage":{' in written("chat", sent_items, call)) is wants_usage


def test_whole_response_is_made_from_another_family() -> None:
    full_value = whole_document(FOREIGN, call_for())

    [choice] = full_value["choices"]
    assert full_value["object"] == "chat.completion"
    assert choice["message"]["content"] == "Paris"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert choice["finish_reason"] == "tool_calls"
    assert full_value["usage"]["total_tokens"] == 10


@pytest.mark.parametrize("family", ["chat", "completions"])
def test_stream_becomes_one_document_for_unstreamed_client(family: FamilyName) -> None:
    docs = chat_events("Pa", "ris") if family == "chat" else legacy_events("Pa", "ris")

    for client in ("chat", "completions"):
        call = replace(call_for(client), stream=False)
        [choice] = whole_document(frames_of(docs, family), call)["choices"]
        text = choice["message"]["content"] if client == "chat" else choice["text"]
        assert text == "Paris"


def whole_frame(doc: Json, number: int = 0, **options: Any) -> Frame:
    family: FamilyName = "completions" if doc["object"] == "text_completion" else "chat"
    return Frame((ResponseStart("1", "m", 1), Finish(0, "stop", "stop"), RESPONSE_END), family, doc,
                 json.dumps(doc).encode(), number, **options)  # fmt: skip


def test_responses_of_several_models_are_one_document() -> None:
    call = replace(call_for("completions", "multimodel"), requested_models=("a", "b"))
    fault_events = Fault("The upstream is down.", "upstream_unavailable"), RESPONSE_END
    fault = Frame(fault_events, model_call=1, last=True)
    result = writer(call, is_whole=True)

    assert result.feed(whole_frame(chat("x"))) == b""
    full_value = json.loads(result.feed(fault))

    assert [choice["text"] for choice in full_value["choices"]] == ["x", ""]
    assert full_value["choices"][1]["error"]["code"] == "upstream_unavailable"
    assert full_value["choices"][1]["finish_reason"] == "error"


def test_enkrypt_clients_get_detections() -> None:
    call = call_for("completions", "enkrypt")
    docs = legacy_events("x", with_usage=False)
    docs[0]["hook_results"] = {"before_request_hooks": [{"id": "theirs", "verdict": False}]}
    stream = writer(call, verdicts=MATCHES)

    frames = frames_of(docs, "completions")[:-1]
    [first_document], *_, [finish] = [documents_of(stream.feed(frame)) for frame in frames]
    full_value = whole_document([whole_frame(legacy_completion("x"), last=True)], call, MATCHES)

    assert "enkrypt_policy_detections" not in first_document
    summary = finish["enkrypt_policy_detections"]
    assert summary["input_guardrails"]["summary"] == {"theirs": 1, "pii": 1}
    summary = full_value["enkrypt_policy_detections"]
    assert summary["input_guardrails"]["summary"] == {"pii": 1}
    assert summary["output_guardrails"]["summary"] == {}
    assert full_value["prompt"] == []


def test_portkey_clients_get_own_and_upstream_hook_results() -> None:
    theirs = Extension("hook_results", {"after_request_hooks": [{"id": "t"}]})
    frames = [*FOREIGN[:1], Frame((theirs,), "messages"), *FOREIGN[1:]]

    hooks = whole_document(frames, call_for("chat", "portkey"), MATCHES)["hook_results"]

    assert [hook["id"] for hook in hooks["before_request_hooks"]] == ["mails"]
    assert [hook["id"] for hook in hooks["after_request_hooks"]] == ["t"]


def test_keep_alives_are_comments_and_failures_events() -> None:
    assert writer(call_for()).feed(Frame(())).startswith(b":")
    assert writer(call_for()).encode_error(b"{}") == b"data: {}\n\n"


def test_legacy_logprobs_have_the_form_of_the_client() -> None:
    tokens = {"content": [{"token": "x", "logprob": -1.0, "bytes": None, "top_logprobs": []}]}
    docs = [{**legacy_completion("x"), "choices": [{"index": 0, "text": "x", "logprobs": tokens}]}]
    frames = frames_of(docs, "completions")

    for dialect, name in (("openai", "tokens"), ("scale", "content")):
        body = written("completions", frames, call_for("completions", dialect, logprobs=1))
        assert name in documents_of(body)[0]["choices"][0]["logprobs"]


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "a"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]},
        {"function_call": {"name": "f", "arguments": "a"}},
    ],
)
def test_text_without_document_stays_in_its_member(delta: Json) -> None:
    doc = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    [first_frame, *_], _ = read_documents("chat", [doc, b"[DONE]"], inspect=True)
    part = next(event.part for event in first_frame.events if isinstance(event, Delta))
    stream = writer(call_for())

    for frame in (first_frame, first_frame._replace(raw=None)):
        stream.feed(frame)
        [options] = documents_of(stream.feed(Frame((Delta(part, "b"),), "chat")))

        expected = json.loads(json.dumps(delta).replace('"a"', '"b"'))
        expected.get("function_call", {}).pop("name", None)
        assert options["choices"][0]["delta"] == expected
