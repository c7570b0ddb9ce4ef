"""A field rule names the end of a path; the longest one comes first."""

from __future__ import annotations

from proxy.fields.rules import FieldRule, field_rules

RULES = field_rules(
    {
        "refuse": ["headers", "tools[].headers", "seed", "container.id"],
        "accept": ["**.tools[].headers"],
        "drop": ["Max-Tokens"],
    },
    anywhere={"headers"},
)


def test_the_longest_rule_is_first_and_accepting_precedes_refusing() -> None:
    assert RULES["headers"] == (
        FieldRule("tools[].headers", ("headers", "tools"), "accept"),
        FieldRule("tools[].headers", ("headers", "tools"), "refuse"),
        FieldRule("headers", ("headers",), "refuse"),
    )


def test_a_name_without_a_dot_is_anchored_unless_it_applies_anywhere() -> None:
    assert [rule.is_anchored for rule in RULES["seed"]] == [True]
    [prefixed] = field_rules({"refuse": ["**.seed"]}, anywhere=())["seed"]
    assert (prefixed.is_anchored, prefixed.name) == (False, "seed")


def test_names_are_squeezed() -> None:
    assert [rule.name for rule in RULES["maxtokens"]] == ["Max-Tokens"]


def test_a_text_stands_for_a_container() -> None:
    [text] = RULES["container"]
    assert (text.name, text.is_text) == ("container.id", True)
