"""Field rules, which name the end of a path."""

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


def test_longest_rule_is_first() -> None:
    assert RULES["headers"] == (
        FieldRule("tools[].headers", ("headers", "tools"), "accept"),
        FieldRule("tools[].headers", ("headers", "tools"), "refuse"),
        FieldRule("headers", ("headers",), "refuse"),
    )


def test_plain_name_is_anchored() -> None:
    assert [rule.is_anchored for rule in RULES["seed"]] == [True]
    [prefixed] = field_rules({"refuse": ["**.seed"]}, anywhere=())["seed"]
    assert (prefixed.is_anchored, prefixed.name) == (False, "seed")


def test_names_are_normalized() -> None:
    assert [rule.name for rule in RULES["maxtokens"]] == ["Max-Tokens"]


def test_text_stands_for_a_container() -> None:
    [text] = RULES["container"]
    assert (text.name, text.is_text) == ("container.id", True)
