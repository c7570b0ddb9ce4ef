"""What stands within a word: it is dropped there alone, and waited for where a text is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.text.within_words import (
    has_one_reading,
    line_ends,
    open_within,
    within_words,
)
from tests.for_each import for_each

ODD = st.lists(
    st.sampled_from(
        [
            *"ab@.-+*`~<>/ \n_1",
            "<b>",
            "</b>",
            "<span x='y'>",
            "<!-- a -->",
            "<td>",
            "**",
            "~~",
            "-\n",
        ]
    ),
    max_size=16,
).map("".join)


def dropped(text: str) -> list[str]:
    return [text[start:end] for start, end, _ in within_words(text)]


@for_each(
    ("text", "within"),
    [
        ("a**b**c", ["**", "**"]),
        ("a***b*c", ["***", "*"]),
        ("a<b><i>b</i></b>c", ["<b><i>", "</i></b>"]),
        ("a<B\tx=1 >b<br>c<p>d", ["<B\tx=1 >"]),
        ("me@<b>mill</b>.example", ["<b>", "</b>"]),
        ("sk-**live**-1", ["**", "**"]),
        ("**a** *b* `c` ~~d~~ a * b a ** b", []),
        ("(**a**), **b**. *c*: `d`!", []),
        ("a****b", ["****"]),
        ("a" + "*" * 13 + "b", []),
        ("a~b a<x and c>d a<bx>c", []),
        ("one-\ntwo three-\r\n  four", ["-\n", "-\r\n  "]),
        ("- one\n-\ntwo --\nthree -\nfour", []),
    ],
)
def test_only_what_stands_within_a_word_is_dropped(text: str, within: list[str]) -> None:
    assert dropped(text) == within


def test_of_a_hyphen_the_end_of_the_line_alone_is_dropped_too() -> None:
    assert [*line_ends("a**b-\nc")] == [(1, 3, ""), (5, 6, "")]


@for_each(
    ("text", "tail"),
    [
        ("word", ""), ("word ", ""), ("word*", "*"), ("word**.", "**."), ("word <b", ""),
        ("word<", "<"), ("word<sp", "<sp"), ("word<span x='y", "<span x='y"), ("word<b>", "<b>"),
        ("word**<b", "**<b"), ("word<!-- x", "<!-- x"), ("a<b c" + "d" * 90, ""), ("a<3", ""),
        ("word-", "-"), ("word- \n  ", "- \n  "), ("word--", ""), ("a~", "~"), ("a < ", ""),
    ],
)  # fmt: skip
def test_only_what_may_stand_within_a_word_is_waited_for(text: str, tail: str) -> None:
    assert text[open_within(text) :] == tail


@given(ODD, ODD)
def test_what_is_not_waited_for_stays_whatever_follows(text: str, more: str) -> None:
    sure = open_within(text)

    assert [each for each in within_words(text) if each[0] < sure] == [
        each for each in within_words(text + more) if each[0] < sure
    ]


@given(ODD)
def test_the_one_pass_sees_whatever_is_dropped(text: str) -> None:
    if dropped(text):
        assert not has_one_reading(text.encode())
