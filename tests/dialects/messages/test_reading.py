"""A Messages answer in chat's form: its texts, why it ended, and what it used."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.messages.reading import EventTurn, chat_answer, chat_usage, own_answer
from proxy.errors import UpstreamInvalid
from proxy.usage import read_usage
from tests.doubles import block_events, message, message_events, text_events
from tests.for_each import for_each

PUBLISHED = [
    ({"input_tokens": 5, "output_tokens": 3}, (5, 0, 0, 3, 0)),
    (
        {
            "input_tokens": 5,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
            "cache_creation": {"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 5},
            "output_tokens": 3,
        },
        (5, 100, 20, 3, 0),
    ),
    (
        {"input_tokens": 5, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
        (5, 0, 0, 5, 4),
    ),
    (
        {"input_tokens": 5, "output_tokens": 9, "server_tool_use": {"web_search_requests": 2}},
        (5, 0, 0, 9, 0),
    ),
    (
        {"input_tokens": 0, "cache_read_input_tokens": 7, "cache_creation_input_tokens": None}
        | {"output_tokens": 1},
        (0, 7, 0, 1, 0),
    ),
]


@for_each(("usage", "counts"), PUBLISHED)
def test_cached_tokens_are_never_counted_as_input(
    usage: dict[str, Any], counts: tuple[int, ...]
) -> None:
    tokens = read_usage(chat_usage(usage))

    assert tokens is not None
    assert counts == (
        *(tokens.input, tokens.cached_input, tokens.cache_write),
        *(tokens.output, tokens.reasoning),
    )


@pytest.mark.parametrize("usage", [{"output_tokens": 3}, {"input_tokens": "5", "output_tokens": 3}])
def test_usage_that_cannot_be_trusted_is_none(usage: dict[str, Any]) -> None:
    assert read_usage(chat_usage(usage)) is None


@for_each(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("unheard_of", "stop"),
    ],
)
def test_each_reason_to_stop_has_its_word(reason: str, finish: str) -> None:
    assert chat_answer(message(stop_reason=reason))["choices"][0]["finish_reason"] == finish


def test_a_block_that_is_none_is_no_answer() -> None:
    with pytest.raises(UpstreamInvalid):
        own_answer(message(content=["text"]))


def test_counts_of_the_end_win_and_those_it_leaves_out_stay() -> None:
    turn = EventTurn(own=False)
    used = {"output_tokens": 30, "cache_read_input_tokens": 7, "input_tokens": None}

    events = message_events(text_events(0, "a"), usage=used)
    chunks = [chunk for event in events for chunk in turn.feed(event)]

    counts = [chunk["usage"] for chunk in chunks if "usage" in chunk]
    assert [one.get("interim") for one in counts] == [True, None]
    assert (counts[1]["prompt_tokens"], counts[1]["completion_tokens"]) == (12, 30)


def test_a_chat_hears_nothing_of_what_it_has_no_word_for() -> None:
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    events = block_events(0, server, {"type": "input_json_delta", "partial_json": "{}"})
    signed = {"type": "signature_delta", "signature": "s"}
    thought = block_events(1, {"type": "thinking", "thinking": ""}, signed)
    turn = EventTurn(own=False)

    assert [chunk for event in [*events, *thought] for chunk in turn.feed(event)] == []


@for_each("event", [{}, {"type": 5}, {"type": "content_block_delta"}, {"type": "x"}])
@for_each("own", [False, True])
def test_an_event_of_no_known_shape_breaks_nothing(event: dict[str, Any], own: bool) -> None:
    for chunk in EventTurn(own=own).feed(event):
        assert chunk["choices"][0]["finish_reason"] is None


@for_each("kind", ["ping", "message_stop", "odd\nevent: error", None])
def test_an_event_that_is_ours_to_say_is_not_passed_on(kind: str | None) -> None:
    assert begun(own=True).feed({"type": kind, "says": "x"}) == []


def begun(*, own: bool) -> EventTurn:
    """Return a turn whose message has begun."""
    turn = EventTurn(own=own)
    turn.feed({"type": "message_start", "message": {}})
    return turn


def test_an_event_that_nobody_knows_passes_to_a_client_of_the_same_form_alone() -> None:
    event = {"type": "odd", "says": "x"}
    [chunk] = begun(own=True).feed(event)

    assert chunk["choices"][0]["delta"] == {"block": {"event": event}}
    assert begun(own=False).feed(event) == []
    assert EventTurn(own=True).feed(event) == []  # before a message it may be of another form
