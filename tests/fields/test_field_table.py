"""Tables and rules of request fields: spellings, groups, members and token bounds."""

from __future__ import annotations

import re
import sys
from typing import Any
from unicodedata import combining, normalize

import pytest

from proxy.dialects.requests.field_filter import apply_field_rules
from proxy.errors import InvalidField
from proxy.fields import field_table, token_bounds
from proxy.fields.checks import MAX_TOKENS, string
from proxy.fields.member_table import FREE_FORM, MEMBERS
from proxy.fields.rules import FieldRule, compile_field_rules
from proxy.fields.spelling import _FORMS_OF_ASCII, casefold_name, normalize_name
from proxy.guards.text.documents import collect_request_texts
from proxy.guards.text.walk import KIND_BY_MEMBER
from proxy.types import Json, Upstream
from tests.for_each import for_each


def test_field_has_one_row() -> None:
    assert len(field_table.FIELDS) == len(field_table.ROWS) + len(field_table.SERVER_ROWS)


def test_type_for_unknown_api_raises() -> None:
    with pytest.raises(ValueError, match="chta"):
        field_table._field("user", {"chat chta": string()})


def test_required_fields_are_first() -> None:
    for api in field_table.APIS:
        required = [field.required for field in field_table.get_fields(api).values()]
        assert required
        assert required == sorted(required, reverse=True)


def test_later_api_replaces_and_removes_fields() -> None:
    fields = field_table.get_fields("completions", "fireworks")

    assert "suffix" not in fields
    assert "min_p" in fields
    assert fields["logprobs"].check(True) is None
    assert field_table.get_fields("completions")["logprobs"].check(True) is not None
    assert fields["echo"] is field_table.get_fields("completions")["echo"]


UPSTREAM = Upstream("openai", "openai", "https://llm.example")


def test_free_form_members_may_have_names_of_forbidden_fields() -> None:
    body: Json = {
        "messages": [{"role": "assistant", "annotations": [{"model": "any"}]}],
        "input": [{"type": "function_call", "arguments": {"server_url": "any"}}],
        "metadata": {"model": "any"},
    }

    assert apply_field_rules(body, UPSTREAM) == (body, [])
    assert {"messages[].annotations", "input[].arguments", "**.metadata"} <= FREE_FORM


def test_text_kind_applies_at_all_levels() -> None:
    assert all(
        KIND_BY_MEMBER[name] == member.text for name, member in MEMBERS.items() if member.text
    )
    body: Json = {
        "messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "a"}]}],
        "input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "b"}]}],
    }

    assert [(text.text, text.kind) for text in collect_request_texts(body).texts] == [
        ("a", "reasoning"),
        ("b", "reasoning"),
    ]


VALUES = {"user": "u", "reasoning_effort": "low", "stop": ["a"], "verbosity": "low"}


def test_paths_survive_a_round_trip() -> None:
    assert all(
        field_table.PATHS_BY_API.keys() >= row.path_by_api.keys() for row in field_table.ROWS
    )
    for api, paths in field_table.PATHS_BY_API.items():
        body = {name: VALUES.get(name, {"a": 1}) for name, *_ in paths}

        moved = field_table.convert_to_api({**body, "model": "m"}, api, {})

        assert moved.keys() == {"model", *(field for _, field, _ in paths)}
        assert field_table.convert_from_api(moved, api, {}) == (body, set())


def test_members_are_merged_into_their_group() -> None:
    body = {"verbosity": "low", "text": {"format": {"type": "text"}}}

    assert field_table.convert_to_api(body, "responses", {}) == {
        "text": {"format": {"type": "text"}, "verbosity": "low"}
    }


def test_group_of_wrong_type_is_named() -> None:
    with pytest.raises(InvalidField, match=r"^text: "):
        field_table.convert_to_api({"verbosity": "low", "text": "x"}, "responses", {})


def test_null_and_unmapped_values_are_omitted() -> None:
    nothing = {"stop": lambda stop: None}

    assert field_table.convert_to_api({"stop": ["a"], "user": None}, "messages", nothing) == {}
    assert field_table.convert_from_api(
        {"stop_sequences": ["a"], "metadata": None}, "messages", nothing
    ) == (
        {},
        set(),
    )


def test_unmapped_members_are_named() -> None:
    body = {"metadata": {"user_id": "u", "team": "x"}, "output_config": {"effort": None}}

    assert field_table.convert_from_api(body, "messages", {}) == ({"user": "u"}, {"metadata"})
    assert field_table.has_values_outside({"a": [], "b": 1}, {"b"}) is False


RULES = compile_field_rules(
    {
        "refuse": ["headers", "tools[].headers", "seed", "container.id"],
        "accept": ["**.tools[].headers"],
        "drop": ["Max-Tokens"],
    },
    anywhere={"headers"},
)


def test_longest_rule_is_first() -> None:
    assert RULES["headers"] == (
        FieldRule("tools[].headers", ("headers", "tools"), "accept"),
        FieldRule("tools[].headers", ("headers", "tools"), "refuse"),
        FieldRule("headers", ("headers",), "refuse"),
    )


def test_plain_name_is_anchored() -> None:
    assert [rule.is_anchored for rule in RULES["seed"]] == [True]
    [prefixed] = compile_field_rules({"refuse": ["**.seed"]}, anywhere=())["seed"]
    assert (prefixed.is_anchored, prefixed.name) == (False, "seed")


def test_names_are_normalized() -> None:
    assert [rule.name for rule in RULES["maxtokens"]] == ["Max-Tokens"]


def test_text_stands_for_a_container() -> None:
    [text] = RULES["container"]
    assert (text.name, text.is_text) == ("container.id", True)


@for_each(
    "name", ["max_tokens", "MAX_TOKENS", "maxTokens", "MaxTokens", "max-tokens", "max_token\u017f"]
)
def test_spellings_of_a_name_are_equal(name: str) -> None:
    assert normalize_name(name) == normalize_name("max_tokens")


def test_other_names_differ() -> None:
    names = ("max_token", "max tokens", "max.tokens", "tokens_max")

    assert normalize_name("max_tokens") not in map(normalize_name, names)


def test_folding_keeps_separators() -> None:
    assert casefold_name("MAX_Tokens") == "max_tokens"
    assert casefold_name("\uff2dodel") == casefold_name("model")
    assert casefold_name("maxTokens") != casefold_name("max_tokens")


def test_all_forms_of_ascii_are_folded() -> None:
    surrogates = range(0xD800, 0xE000)
    every = [chr(code) for code in range(sys.maxunicode + 1) if code not in surrogates]
    document = {name: normalize("NFKC", normalize("NFKC", name).casefold()) for name in every}

    for name, form in document.items():
        if re.fullmatch("[a-z0-9_.-]+", form):
            assert casefold_name(name) == form, hex(ord(name))


def test_folded_characters_expand_little() -> None:
    codes = [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]
    every = [name for name in map(chr, codes) if _FORMS_OF_ASCII.fullmatch(name)]

    assert not any(map(combining, every))
    assert max(len(normalize("NFKD", name)) for name in every) <= 8


@pytest.mark.parametrize("name", ["a" + "\u0315\u0316" * 100, "a" + "\ufdfa" * 200, "\ufdfa"])
def test_expensive_names_are_not_folded(name: str) -> None:
    assert casefold_name(name) is name  # folding makes a text of its own


CHAT, COMPLETIONS = field_table.get_fields("chat"), field_table.get_fields("completions")
KNOWN_VALUES = frozenset({"max_tokens", "max_completion_tokens", "thinking"})
UNBOUNDED = 1024


@for_each(
    ("body", "maximum"),
    [
        ({}, UNBOUNDED),
        ({"max_tokens": None}, UNBOUNDED),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 0}, UNBOUNDED),
        ({"max_tokens": 1, "max_completion_tokens": 900}, 900),
        ({"max_tokens": -1}, UNBOUNDED),
        ({"max_tokens": 5000, "n_predict": -2}, 5000),
        ({"max_tokens": 5, "n_predict": -2}, UNBOUNDED),
        ({"n_predict": 60}, UNBOUNDED),
        ({"max_tokens": 5, "n_predict": 60}, 60),
        ({"max_tokens": 5, "options": {"num_predict": 60}}, 60),
        ({"max_tokens": 5, "options": {"num_predict": 0}}, UNBOUNDED),
        ({"options": {"max_tokens": 5}}, UNBOUNDED),
        ({"max_tokens": 5, "min_tokens": 60}, 60),
        ({"min_tokens": 60}, UNBOUNDED),
        ({"max_tokens": 5, "n": 3, "best_of": 4}, 20),
        ({"max_tokens": 5, "best_of": 0}, 5),
        ({"max_tokens": 5, "extra_body": {"options": {"n": 3}}}, 15),
        ({"max_tokens": 5, "thinking_budget": 2}, 7),
        ({"max_tokens": 5, "thinking": {"budget_tokens": 2}}, 5),
        ({"max_tokens": 5, "thinking": {"budget_tokens": 9}}, 9),
        ({"thinking": {"budget_tokens": 2}}, UNBOUNDED + 2),
        ({"max_tokens": 5, "extra_body": {"thinking": {"budget_tokens": 2}}}, 7),
        ({"max_tokens": 5, "reasoning": {"max_tokens": 2}}, 7),
    ],
)
def test_token_bound_covers_all_servers(body: dict[str, Any], maximum: int) -> None:
    assert token_bounds.estimate_max_output_per_prompt(body, KNOWN_VALUES) == maximum


@for_each(
    ("body", "answers"),
    [
        ({}, 1),
        ({"n": None}, 1),
        ({"n": 0}, 1),
        ({"n": 3, "best_of": 5}, 5),
        ({"extra_body": {"options": {"n": 3}}}, 3),
        ({"prompt": "Hi"}, 1),
        ({"prompt": ["Hi", "Ho"], "n": 3}, 6),
    ],
)
def test_choices_of_a_request_are_counted(body: dict[str, Any], answers: int) -> None:
    assert token_bounds.count_total_choices(body) == answers


def test_nested_option_groups_are_found() -> None:
    body = {"extra_body": {"options": {"a": 1}}, "options": "text", "other": {"options": {}}}

    assert [path for path, _ in token_bounds.list_body_and_option_groups(body)] == [
        "",
        "extra_body.",
        "extra_body.options.",
    ]


@for_each("value", ["9", [9], {}, True, 1.0, -3, MAX_TOKENS + 1])
@for_each("name", sorted(token_bounds.COUNT_TYPES))
def test_numbers_are_checked_in_groups(name: str, value: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        token_bounds.check_counts_and_spelling_in_option_groups({"options": {name: value}})

    assert refused.value.param == f"options.{name}"
    assert token_bounds.add_missing_common_fields({})[name].check(value) is not None


def test_dialect_fields_take_precedence() -> None:
    assert (
        token_bounds.add_missing_common_fields(COMPLETIONS)["logprobs"] is COMPLETIONS["logprobs"]
    )
    assert CHAT["stop"].check(["a"] * 6) is not None
    assert token_bounds.remove_ranges(CHAT)["stop"].check(["a"] * 6) is None
    assert token_bounds.remove_ranges(CHAT)["stop"].check([1]) is not None
    assert token_bounds.remove_ranges(CHAT)["max_tokens"].check(-1) is None
