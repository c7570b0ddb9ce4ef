"""Escapes: what each stands for, and where one that is cut begins."""

from __future__ import annotations

from proxy.guards.text.escapes import IN_JSON, pending_escape, unescaped
from tests.for_each import for_each


@for_each(
    ("text", "made"),
    [
        ("&#65;&#x42;&amp;", ["A", "B", "&"]),
        ("&#65&#x42 &#67x", ["A", "B", "C"]),
        ("&shyx &shy;", ["\xad", "\xad"]),
        ("&amp &none; &#1234567890123 &#x1234567890abc", []),
        (r"\x41\u{42}\U00000043\u0044", ["A", "B", "C", "D"]),
        (r"\ud83d\ude00 \ud83d \xg \u{} \u{110000} \U00110000", ["\U0001f600"]),
        ("%41%C3%A9%FF", ["A", "é"]),
    ],
)
def test_an_escape_is_the_letter_that_it_stands_for(text: str, made: list[str]) -> None:
    assert [each for _, _, each in unescaped(text)] == made


def test_in_json_only_its_own_escapes_are_undone() -> None:
    assert [each for _, _, each in unescaped(r"\n\/\u0041\x41&#65;", IN_JSON)] == ["\n", "/", "A"]


@for_each(
    ("text", "tail"),
    [
        ("see &", "&"), ("see &#1", "&#1"), ("see &#x4", "&#x4"), ("see &am", "&am"), ("&#65x", ""),
        ("50%", "%"), ("%C3", "%C3"), ("\\", "\\"), ("\\x", "\\x"), ("\\x4", "\\x4"), ("\\x41", ""),
        ("\\u{4", "\\u{4"), ("\\u{41}", ""), ("\\U0000", "\\U0000"), ("\\ud83d\\", "\\ud83d\\"),
        ("x", ""),
    ],
)  # fmt: skip
def test_an_escape_that_is_cut_is_pending(text: str, tail: str) -> None:
    assert text[pending_escape(text) :] == tail


def test_in_json_an_even_number_of_backslashes_is_whole() -> None:
    assert pending_escape("a\\\\", in_json=True) == 3
    assert pending_escape("a\\\\\\", in_json=True) == 1
