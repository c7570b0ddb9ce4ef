"""A Responses answer in chat's form: whole, and event by event."""

from __future__ import annotations

from proxy.dialects.responses.reading import ResponseTurn, chat_answer, own_answer
from proxy.usage import read_usage
from tests.doubles import Json, item_events, response, response_events, text_item
from tests.for_each import for_each

CALL: Json = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f"}
CALL |= {"arguments": "{}", "status": "completed"}
THOUGHT: Json = {"type": "reasoning", "id": "rs_1"}
THOUGHT["summary"] = [{"type": "summary_text", "text": "Hm."}]


def deltas(*events: Json, own: bool) -> list[Json]:
    turn = ResponseTurn(own=own)
    return [chunk["choices"][0]["delta"] for event in events for chunk in turn.feed(event)]


def test_a_whole_answer_says_in_a_chat_what_its_items_say() -> None:
    [choice] = chat_answer(response(THOUGHT, text_item("A"), CALL, text_item("B")))["choices"]

    function = {"name": "f", "arguments": "{}"}
    assert choice["message"] == {
        "role": "assistant",
        "content": "AB",
        "reasoning_content": "Hm.",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    assert choice["finish_reason"] == "tool_calls"


def test_an_answer_for_its_own_clients_keeps_its_items_and_not_what_it_repeats() -> None:
    made = own_answer(response(THOUGHT, CALL, instructions="Hide this.", new=[1]))

    [choice] = made["choices"]
    assert choice["message"]["content"] == [THOUGHT, CALL]
    assert choice["rest"]["new"] == [1]
    assert "Hide this." not in str(made)


@for_each(
    ("more", "finish"),
    [
        ({}, "stop"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
        ),
        ({"status": "incomplete", "incomplete_details": None}, "stop"),
    ],
)
def test_why_it_has_ended_is_said_in_a_chats_words(more: Json, finish: str) -> None:
    assert chat_answer(response(**more))["choices"][0]["finish_reason"] == finish


def test_usage_is_a_chats_with_searches_beside_it() -> None:
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}}
    usage |= {"output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 20}}
    search = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}}
    opened = {**search, "action": {"type": "open_page"}}

    by_items = read_usage(chat_answer(response(search, opened, usage=usage))["usage"])
    counts = {"web_search": {"num_requests": 3}}
    by_count = read_usage(chat_answer(response(search, usage=usage, tool_usage=counts))["usage"])

    assert by_items is not None
    assert by_count is not None
    assert (by_items.input, by_items.cached_input) == (40, 60)
    assert (by_items.output, by_items.reasoning) == (10, 20)
    assert (by_items.web_searches, by_count.web_searches) == (1, 3)


def test_what_a_stream_says_again_is_left_out_and_its_text_stands_once() -> None:
    item = text_item("It is Paris.")
    events = response_events(item_events(0, item, "It is ", "Paris."), whole=response(item))

    made = deltas(*events, own=True)

    assert [each["content"] for each in made if "content" in each] == ["It is ", "Paris."]
    assert str(made).count("Paris.") == 1
    assert len(made) == len(events)


def test_a_text_that_no_delta_has_said_is_said_by_its_end() -> None:
    where = {"item_id": "fc_1", "output_index": 1}
    done = {"type": "response.function_call_arguments.done", **where, "arguments": "{}"}
    added = {"type": "response.output_item.added", "output_index": 1}

    [_, own] = deltas({**added, "item": {**CALL, "arguments": ""}}, done, own=True)
    [_, crossed] = deltas({**added, "item": {**CALL, "arguments": ""}}, done, own=False)

    called = [{"index": 0, "function": {"arguments": "{}"}}]
    assert own["tool_calls"] == crossed["tool_calls"] == called
    assert own["block"]["index"] == 1
    assert "block" not in crossed


def test_events_that_come_amid_a_text_do_not_let_it_go() -> None:
    annotation = {"type": "url_citation", "url": "https://a.test", "title": "A"}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "annotation_index": 0}
    event = {"type": "response.output_text.annotation.added", **where, "annotation": annotation}

    [made] = deltas(event, own=True)

    assert made["block"].keys() == {"event"}


def test_deltas_that_a_chat_has_no_place_for_keep_their_type() -> None:
    kind = "response.code_interpreter_call_code.delta"
    event = {"type": kind, "item_id": "ci_1", "output_index": 2, "delta": "print(1)"}

    [made] = deltas({**event, "sequence_number": 7, "obfuscation": "x"}, own=True)

    kept = {"type": kind, "output_index": 2, "delta": "print(1)"}
    assert made == {"block": {"index": 2, "delta": kept}}
    assert deltas(event, own=False) == []


def test_a_call_that_is_said_where_it_is_done_alone_has_its_id_and_its_name() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": call}
    turn = ResponseTurn(own=False)

    chunks = [
        chunk
        for event in response_events([done], whole=response(call))
        for chunk in turn.feed(event)
    ]

    said = [
        call
        for c in chunks
        for choice in c["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert [each.get("id") for each in said] == ["c", None]
    assert [each["function"].get("name") for each in said] == ["f", None]
    assert "".join(each["function"]["arguments"] for each in said) == "{}"
