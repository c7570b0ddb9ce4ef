"""Streamed tool arguments: each string is inspected alone, and the result is JSON at any cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.kinds import pii
from proxy.guards.stream.arguments import ArgumentsFilter
from proxy.guards.text.json_strings import iter_text_span_per_value, replace_text_spans
from proxy.types.guard import GuardRule
from tests.for_each import for_each
from tests.guards.doubles import pieces, rule, tallies

CUTS = st.lists(st.integers(0, 300), max_size=8)
TEXTS = st.sampled_from(
    ["a secret", "sec", "ret", 'se"cret', "sec\\ret", "secret\n", "é", ""]
) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.just(4111111111111111),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def text_of(released: list[Any]) -> str:
    return "".join(piece.text for piece in released)


def texts_in(arguments: str) -> list[str]:
    return [
        arguments[start:end] for start, end, _ in filter(None, iter_text_span_per_value(arguments))
    ]


@for_each(
    ("arguments", "texts"),
    [
        ('{"to": "Ann", "n": 12, "ok": true}', ["to", "Ann", "n", "12", "ok"]),
        (r'{"say": "a \"b\" \\", "x": [1.5e3,null]}', ["say", r"a \"b\" \\", "x", "1.5e3"]),
        ('{"cut": "in the mid', ["cut", "in the mid"]), ("not JSON: at all", ["not JSON: at all"]),
        ('  {"a":""}', ["a"]), ("", []), ("  ", []), ("{broken words}", ["broken", "words"]),
        (r"{'to': 'Ann \'n\' \"O\"', 'n': 12}", ["to", r"Ann \'n\' \"O\"", "n", "12"]),
        ("{don't: 'it', \"a'b\": [','] }", ["don't", "it", "a'b", ","]),
        ("'plain words', as ever", ["'plain words', as ever"]),
    ],
)  # fmt: skip
def test_each_string_of_arguments_is_a_segment(arguments: str, texts: list[str]) -> None:
    assert texts_in(arguments) == texts


def test_masked_number_becomes_a_string() -> None:
    assert replace_text_spans('{"card": 4111, "x": "é\\n"}', {1: "[CARD]", 3: r"\"y\""}) == (
        r'{"card": "[CARD]", "x": "\"y\""}'
    )


@given(JSON, CUTS, st.booleans(), st.booleans())
def test_arguments_masked_at_any_cut_stay_json(
    value: Any, cuts: list[int], ascii_only: bool, wrapped: bool
) -> None:
    arguments = json.dumps([value] if wrapped else {"a": value}, ensure_ascii=ascii_only)
    rules = (rule("secret", "411111", action="mask"),)
    single, window = (ArgumentsFilter.for_rules(tallies(*rules)) for _ in range(2))

    full_text = text_of([*single.feed(arguments), *single.close()])
    matches = [piece for part in pieces(arguments, cuts) for piece in window.feed(part)]
    matches += window.close()

    assert text_of(matches) == full_text
    assert sum(piece.size for piece in matches) == len(arguments)
    assert "secret" not in json.dumps(json.loads(full_text))


@for_each("joint", ["\n", "\t", "\r", '"', "\u2028"])
def test_finding_after_an_escape_keeps_the_escape(joint: str) -> None:
    arguments = json.dumps({"note": f"Write to{joint}jane@example.com"})
    email = GuardRule("pii", pii.Pii(["email"]), "mask", cased=True)
    window = ArgumentsFilter.for_rules(tallies(email))

    output = text_of([*window.feed(arguments), *window.close()])

    assert json.loads(output) == {"note": f"Write to{joint}[EMAIL]"}


@given(JSON, CUTS)
def test_arguments_without_findings_are_unchanged(value: Any, cuts: list[int]) -> None:
    arguments = json.dumps({"a": value})
    window = ArgumentsFilter.for_rules(tallies(rule("never there")))

    matches = [piece for part in pieces(arguments, cuts) for piece in window.feed(part)]
    matches += window.close()

    assert text_of(matches) == arguments
    assert not any(piece.is_changed for piece in matches)


@for_each(
    ("word", "parts", "expected"),
    [
        ("secret", ['{"to": "sec', '", "n": 1'], ['{"to": "', 'sec", "n": ']),
        ("a secret", ["it is a sec", "ret, yes"], ["it ", "is [WORD]"]),
    ],
)
def test_ended_string_and_plain_text_are_released(
    word: str, parts: list[str], expected: list[str]
) -> None:
    window = ArgumentsFilter.for_rules(tallies(rule(word, action="mask")))

    assert [text_of(window.feed(part)) for part in parts] == expected
