"""Chat documents become frames in the order of events, each text once and at its slot."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.chat.choices import MAX_PARTS
from proxy.dialects.families import FAMILIES
from proxy.dialects.family import ReadOptions
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.types.events import (
    RESPONSE_END,
    Attach,
    Delta,
    Finish,
    Frame,
    PartStart,
    ResponseStart,
    Unmapped,
)
from tests.dialects.chat.replay import call_for, read_documents, written
from tests.doubles import Json
from tests.for_each import for_each
from tests.golden.events import value_at

HEAD: Json = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def call(index: Any, text: str | None, name: str | None = None, **more: Any) -> Json:
    function: Json = {} if name is None else {"name": name}
    function |= {} if text is None else {"arguments": text}
    return {"index": index, **more, "function": function}


def events(kind: Any, doc: Json, **options: Any) -> list[Any]:
    """Return the events of a type of a stream with one document."""
    frames, _ = read_documents("chat", [doc, b"[DONE]"], **options)
    return [event for frame in frames for event in frame.events if isinstance(event, kind)]


def read_all(*docs: Json, **options: Any) -> list[Frame]:
    return read_documents("chat", [*docs, chunk({}, "stop")], **options)[0]


def texts(frames: list[Frame]) -> list[tuple[str, str]]:
    """Return the kind and the text of each part, in the order in which they begin."""
    text_by_part: dict[Any, str] = {}
    for frame in frames:
        for event in frame.events:
            if isinstance(event, PartStart):
                text_by_part[event.part] = ""
            elif isinstance(event, Delta):
                text_by_part[event.part] += event.text
    return [(part.kind, text) for part, text in text_by_part.items()]


def test_chunk_of_the_same_shape_is_one_delta() -> None:
    frames = read_all(chunk({"content": "a"}), chunk({"content": "b"}), chunk({"content": "c"}))

    first_types, *later_types = [[type(event) for event in frame.events] for frame in frames]
    assert first_types == [ResponseStart, PartStart, Delta]
    assert later_types == [[Delta], [Delta], [Finish], [type(RESPONSE_END)]]


@pytest.mark.parametrize("index", [True, 1.0, "1", 1])
def test_choice_index_is_normalized(index: Any) -> None:
    second_doc = {**HEAD, "choices": [{"index": index, "delta": {"content": "b"}}]}
    first_chunk = {**HEAD, "choices": [{"index": 1, "delta": {"content": "a"}}]}

    frames, _ = read_documents("chat", [first_chunk, second_doc, b"[DONE]"], inspect=True)

    assert texts(frames) == [("text", "ab")]


@for_each(
    ("members", "expected"),
    [
        ({"id": "", "model": ""}, ("", "", 1)),
        ({"id": None, "model": 5}, (None, None, 1)),
        ({"created": "now"}, ("c", "m", None)),
    ],
)
def test_response_start_keeps_texts_as_they_are(members: Json, expected: tuple[Any, ...]) -> None:
    assert events(ResponseStart, chunk({"content": "a"}, **members)) == [ResponseStart(*expected)]


def test_response_starts_at_a_document_with_any_id() -> None:
    frames = read_all({"id": 5, "choices": []}, chunk({"content": "a"}))

    assert frames[0].events == (ResponseStart(None, None, None),)


def test_reasoning_under_two_names_counts_once() -> None:
    doc_of_both = chunk({"reasoning_content": "why", "reasoning": "why"})

    assert texts(read_all(doc_of_both)) == [("reasoning", "why")]
    assert texts(read_all(doc_of_both, is_translated=True)) == [("reasoning", "why")]
    inspected = read_all(doc_of_both, inspect=True)
    assert texts(inspected) == [("reasoning", "why")]
    assert Unmapped() in inspected[0].events


def test_each_choice_of_a_chunk_has_its_own_frames() -> None:
    choices = [
        {"index": 0, "delta": {"content": "a"}, "finish_reason": None},
        {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"},
    ]

    frames, _ = read_documents("chat", [{**HEAD, "choices": choices}, b"[DONE]"], inspect=True)

    kinds = [[type(event) for event in frame.events] for frame in frames]
    assert kinds[:3] == [[ResponseStart, PartStart, Delta], [PartStart, Delta], [Finish]]
    assert frames[2].events[0] == Finish(1, "stop", "stop")
    docs = [(frame.doc or {})["choices"] for frame in frames[:3]]
    assert [[item["index"] for item in choices] for choices in docs] == [[0], [1], [1]]
    assert docs[1][0]["finish_reason"] is None
    assert docs[2][0] == {"index": 1, "delta": {}, "logprobs": None, "finish_reason": "stop"}


def test_other_members_stay_in_the_first_document_of_a_text() -> None:
    first_delta = {"role": "assistant", "content": "a", "mood": "calm"}

    frames = read_all(chunk({**first_delta, "refusal": "b"}, note="n"), inspect=True)

    docs = [frame.doc or {} for frame in frames[:2]]
    assert docs[0]["note"] == "n"
    assert [item["choices"][0]["delta"] for item in docs] == [first_delta, {"refusal": "b"}]
    assert "note" not in docs[1]


def test_name_has_a_slot_and_missing_id_is_created() -> None:
    opening = chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]})

    [begin] = events(PartStart, opening)
    [crossing] = events(PartStart, opening, is_translated=True)

    assert (begin.call.id, begin.call.name) == ("", "f")
    assert value_at(opening, begin.slot) == "f"
    assert crossing.call.id == "call_c_0"


def test_placeholder_arguments_are_replaced_by_real_ones() -> None:
    opening = chunk({"tool_calls": [call(0, "{}", "f", id="a")]})

    real = read_all(opening, chunk({"tool_calls": [call(0, '{"a":1}')]}), is_translated=True)
    placeholder = read_all(opening, is_translated=True)
    text = read_all(opening, chunk({"content": "x"}), is_translated=True)

    assert texts(real) == [("arguments", '{"a":1}')]
    assert texts(placeholder) == [("arguments", "{}")]
    assert texts(text) == [("arguments", "{}"), ("text", "x")]


def test_object_arguments_become_text_for_other_families() -> None:
    function = {"name": "f", "arguments": {"a": 1}}
    opening = chunk({"tool_calls": [{"index": 0, "function": function}]})
    for doc in (opening, chunk({"function_call": function})):
        assert texts(read_all(doc, is_translated=True)) == [("arguments", '{"a":1}')]


def test_content_parts_are_texts_of_their_kinds() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thought, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    doc = chunk({"content": parts})

    inspected = read_all(doc, chunk({"content": "c"}), inspect=True)

    assert texts(inspected) == [("reasoning", "hm"), ("text", "abc")]
    assert texts(read_all(doc, is_translated=True)) == [("reasoning", "hm"), ("text", "ab")]
    first_content = (inspected[0].doc or {})["choices"][0]["delta"]["content"]
    assert [item.get("text") for item in first_content] == [None, "", ""]


def test_logprobs_are_attached_to_their_text() -> None:
    doc = chunk({"content": "a"})
    doc["choices"][0]["logprobs"] = {"content": [{"token": "a"}]}

    [attach] = events(Attach, doc, inspect=True)

    assert value_at(doc, attach.slot) == attach.value
    assert not events(Attach, doc)


@pytest.mark.parametrize(
    "change",
    [
        {"note": "x"},
        {"id": "two words"},
        {"object": 1},
        {"usage": {"note": "x"}},
        {"choices": [{"index": 0, "delta": {"role": "a poet"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "no reason"}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "x": 1}]}}]},
        {"choices": [{"index": 0, "delta": {"content": 1}}]},
        {"choices": [{"index": 0, "delta": "text"}]},
    ],
)
def test_unmapped_member_is_native(change: Json) -> None:
    reader = FAMILIES["chat"].reader(ReadOptions(call_for(), inspect=True))

    frames = [frame for doc in (chunk({"content": "a"}), {**chunk({}), **change})
              for frame in reader.read(doc, b"")]  # fmt: skip

    assert Unmapped() not in frames[0].events
    assert Unmapped() in frames[-1].events


INVALID: list[Any] = ["seven", {"a": "b"}, ["b"], 1.5, -1, "-1", MAX_PARTS, 10**30]
NUMBERS: list[tuple[Any, int]] = [(None, 0), (1, 1), (1.0, 1), ("1", 1), (True, 1), (False, 0)]


@for_each("index", INVALID)
def test_invalid_index_is_an_error_of_an_inspected_stream(index: Any) -> None:
    doc = {**HEAD, "choices": [{"index": index, "delta": {"content": "a"}}]}

    [frame] = FAMILIES["chat"].reader(ReadOptions(call_for())).read(doc, b"raw")
    with pytest.raises(UpstreamInvalid, match="choice with an invalid index"):
        FAMILIES["chat"].reader(ReadOptions(call_for(), inspect=True)).read(doc, b"raw")
    one = ReadOptions(call_for(), inspect=True, one_choice=True)
    [only, *_] = FAMILIES["chat"].reader(one).read(doc, b"raw")

    assert frame.raw == b"raw"
    assert (only.doc or {})["choices"][0]["index"] == 0


@for_each(("index", "number"), NUMBERS)
def test_index_of_an_inspected_stream_is_an_integer(index: Any, number: int) -> None:
    reader = FAMILIES["chat"].reader(ReadOptions(call_for(), inspect=True))
    docs = [{**HEAD, "choices": [{"index": i, "delta": {"content": "a"}}]} for i in (number, index)]

    frames = [frame for doc in docs for frame in reader.read(doc, b"raw")]

    indexes = [(frame.doc or {})["choices"][0]["index"] for frame in frames]
    assert [(type(i), i) for i in indexes] == [(int, number)] * 2


def test_client_of_one_choice_gets_the_first_as_number_0() -> None:
    options = ReadOptions(call_for(), inspect=True, one_choice=True)
    reader = FAMILIES["chat"].reader(options)
    both = [{"index": i, "delta": {"content": f"of {i}"}} for i in (3, 0)]
    docs = [{**HEAD, "choices": choices} for choices in ([both[0]], both, [both[1]])]

    frames = [frame for doc in docs for frame in reader.read(doc, b"")]

    shown = [(c["index"], c["delta"]) for f in frames for c in (f.doc or {})["choices"]]
    assert shown == [(0, {"content": "of 3"})] * 2


def test_padding_is_dropped_from_an_inspected_stream() -> None:
    docs = [chunk({"content": item}, obfuscation="x" * size) for size, item in enumerate("abc", 1)]

    frames = read_all(*docs, inspect=True)

    assert all("obfuscation" not in (frame.doc or {}) for frame in frames)
    assert [len(frame.events) for frame in frames[:3]] == [3, 1, 1]


def test_done_completes_a_stream_without_a_finish_reason() -> None:
    frames, _ = read_documents("chat", [chunk({"content": "a"}), b"[DONE]"])

    assert frames[-1].events == (Finish(0, "stop"), RESPONSE_END)
    assert written("chat", frames).count(b"finish_reason") == 1


@for_each(("options", "has_calls"), [({}, False), ({}, True), ({"inspect": True}, True)], ids=str)
def test_parts_and_choices_are_bounded(options: Any, has_calls: bool) -> None:
    reader = FAMILIES["chat"].reader(ReadOptions(call_for(), **options))
    with pytest.raises(ResponseTooLarge):
        for number in range(MAX_PARTS + 1):
            delta = {"tool_calls": [call(0, "{}", "f", id=f"id{number}")]}
            choice = {"index": number, "delta": {}, "finish_reason": "stop"}
            choices = [{"index": 0, "delta": delta}] if has_calls else [choice]
            reader.read({**HEAD, "choices": choices}, b"")


def test_whole_response_is_one_frame_or_a_stream() -> None:
    message = {"role": "assistant", "content": "a", "reasoning": "b", "annotations": ["c"],
               "tool_calls": [{"id": "1", "type": "function",
                               "function": {"name": "f", "arguments": "{}"}}]}  # fmt: skip
    answer_doc = {**HEAD, "object": "chat.completion", "usage": USAGE,
             "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}  # fmt: skip
    call = call_for()

    [frame] = FAMILIES["chat"].reader(ReadOptions(call, whole=True)).read(answer_doc, b"raw")
    streamed = ReadOptions(call, whole=True, stream=True)
    parts = FAMILIES["chat"].reader(streamed).read(answer_doc, b"raw")

    expected = [("reasoning", "b"), ("text", "a"), ("arguments", "{}")]
    assert texts([frame]) == texts([*parts]) == expected
    assert (frame.doc, frame.raw, frame.events[-1]) == (answer_doc, b"raw", RESPONSE_END)
    assert parts[-1].events == (RESPONSE_END,)
    assert all(part.raw is None for part in parts)
    assert b'"annotations":["c"]' in written("chat", parts)
