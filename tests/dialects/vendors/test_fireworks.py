"""Fireworks' own words."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import read_call
from proxy.dialects.vendors import fireworks
from proxy.errors import InvalidField
from proxy.types import RequestHead

HEAD = RequestHead("fireworks", "completions", "/inference/v1/completions", "req_1")
CHAT = RequestHead("fireworks", "chat", "/inference/v1/chat/completions", "req_1")
SCHEMA = {"type": "object"}


def read(**fields: Any) -> Any:
    return read_call(HEAD, {"model": "accounts/a/models/b", "prompt": "p", **fields})


def test_a_json_schema_takes_openais_form_and_comes_back() -> None:
    own_value = {"type": "json_object", "schema": SCHEMA}

    chat = read(response_format=own_value).body

    assert chat["response_format"]["json_schema"]["schema"] == SCHEMA
    assert fireworks.from_chat("completions", chat)["response_format"] == own_value


def test_two_output_bounds_exclude_each_other() -> None:
    with pytest.raises(InvalidField, match="max_completion_tokens"):
        read(max_tokens=1, max_completion_tokens=1)


def test_the_newer_output_bound_is_the_older_on_legacy_completions() -> None:
    assert read(max_completion_tokens=7).body["max_tokens"] == 7


def test_a_count_of_log_probabilities_is_a_flag_in_chat() -> None:
    messages = [{"role": "user", "content": "hi"}]

    body = read_call(CHAT, {"model": "m", "messages": messages, "logprobs": 2}).body

    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)


def test_prompt_tokens_are_in_a_header_when_known() -> None:
    assert fireworks.answer_headers({"usage": {"prompt_tokens": 5}}, 1, "bypass") == (
        ("fireworks-prompt-tokens", "5"),
    )
    assert fireworks.answer_headers(None, 1, "bypass") == ()
