"""Disguises of a text are found, undone, and ruled out quickly."""

from __future__ import annotations

import re
import sys
from unicodedata import category, combining, decomposition, normalize

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.guards.matching.re2set import encode_utf8
from proxy.guards.text import base64_text, disguises
from proxy.guards.text.disguises import CONTROLS, INVISIBLE
from proxy.guards.text.normalize import build_views
from tests.for_each import for_each
from tests.guards.growth import LINEAR, SHAPES, SIZE, TIMES, grown


@for_each(
    ("text", "results"),
    [
        ("&#65;&#x42;&amp;", ["A", "B", "&"]), ("&#65&#x42 &#67x", ["A", "B", "C"]),
        ("&shyx &shy;", ["\xad", "\xad"]), ("&amp &none; &#1234567890123 &#x1234567890abc", []),
        (r"\x41\u{42}\U00000043\u0044", ["A", "B", "C", "D"]),
        (r"\ud83d\ude00 \ud83d \xg \u{} \u{110000} \U00110000", ["\U0001f600"]),
        ("%41%C3%A9%FF", ["A", "é"]),
    ],
)  # fmt: skip
def test_escapes_are_decoded(text: str, results: list[str]) -> None:
    assert [name for _, _, name in disguises.find_escapes(text)] == results


def test_only_json_escapes_are_decoded_in_json() -> None:
    assert [
        name
        for _, _, name in disguises.find_escapes(r"\n\/\u0041\x41&#65;", disguises.JSON_ESCAPES)
    ] == [
        "\n",
        "/",
        "A",
    ]


def composed(text: str, *, strip_marks: bool = False) -> str:
    text, past = disguises.apply_one_to_one_nfkc(text), 0
    parts: list[str] = []
    for start, end, result in disguises.find_nfkc_cluster_edits(text, strip_marks=strip_marks):
        parts += (text[past:start], result)
        past = end
    return "".join((*parts, text[past:]))


@for_each("shape", SHAPES)
def test_composition_takes_linear_time(shape: str) -> None:
    result = SHAPES[shape]

    assert grown(build_views, result(SIZE), result(SIZE * TIMES)) < LINEAR


def test_every_character_is_composed_as_unicode_does() -> None:
    for name in map(chr, (*range(0xD800), *range(0xE000, 0x30000), *range(0xE0000, 0xE1000))):
        assert composed(name) == normalize("NFKC", name)


@for_each("marks", [0, 1, disguises.MAX_MARKS, disguises.MAX_MARKS + 1, 3 * disguises.MAX_MARKS])
def test_number_of_composed_marks_is_bounded(marks: int) -> None:
    text = "e" + "\u0315\u0316" * marks

    assert (
        composed(text)
        == normalize("NFKC", text[: disguises.MAX_MARKS + 1]) + text[disguises.MAX_MARKS + 1 :]
    )
    assert composed(text, strip_marks=True) == "e"


EVERY = [chr(code) for code in range(sys.maxunicode + 1)]


def test_folds_give_one_ascii_character() -> None:
    assert all(
        code > 127 and len(plain) == 1 and plain.isascii()
        for code, plain in disguises.LOOK_ALIKES.items()
    )
    assert [
        chr(code) for code in disguises.LOOK_ALIKES if normalize("NFKC", chr(code)) != chr(code)
    ] == []


def test_every_format_character_is_invisible() -> None:
    unseen = re.compile(f"[{INVISIBLE}]")

    assert [name for name in EVERY if category(name) == "Cf" and not unseen.match(name)] == []


def test_every_character_that_composes_backwards_is_known() -> None:
    seconds = set()
    for full_text in EVERY:
        parts = decomposition(full_text).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(part, 16)) for part in parts)
            if normalize("NFC", pair) == full_text and combining(pair[1]) == 0:
                seconds.add(pair[1])

    assert all(map(disguises.COMPOSING.fullmatch, seconds))


ODD = st.lists(
    st.sampled_from(
        [
            *"ab@.-+*`~<>/ \n_1", "<b>", "</b>", "<span x='y'>", "<!-- a -->", "<td>", "**", "~~",
            "-\n",
        ]
    ),
    max_size=16,
).map("".join)  # fmt: skip


def dropped(text: str) -> list[str]:
    return [text[start:end] for start, end, _ in disguises.find_markup_in_words(text)]


@for_each(
    ("text", "inner"),
    [
        ("a**b**c", ["**", "**"]), ("a***b*c", ["***", "*"]),
        ("a<b><i>b</i></b>c", ["<b><i>", "</i></b>"]), ("a<B\tx=1 >b<br>c<p>d", ["<B\tx=1 >"]),
        ("me@<b>mill</b>.example", ["<b>", "</b>"]), ("sk-**live**-1", ["**", "**"]),
        ("**a** *b* `c` ~~d~~ a * b a ** b", []), ("(**a**), **b**. *c*: `d`!", []),
        ("a****b", ["****"]), ("a" + "*" * 13 + "b", []), ("a~b a<x and c>d a<bx>c", []),
        ("one-\ntwo three-\r\n  four", ["-\n", "-\r\n  "]),
        ("- one\n-\ntwo --\nthree -\nfour", []),
    ],
)  # fmt: skip
def test_only_characters_within_words_are_dropped(text: str, inner: list[str]) -> None:
    assert dropped(text) == inner


@given(ODD, ODD)
def test_settled_text_is_independent_of_what_follows(text: str, more: str) -> None:
    sure = disguises.find_trailing_markup(text)

    assert [
        within_word for within_word in disguises.find_markup_in_words(text) if within_word[0] < sure
    ] == [
        within_word
        for within_word in disguises.find_markup_in_words(text + more)
        if within_word[0] < sure
    ]


PIECES = (
    "a", "b c", " ", "\n", "\r", "\t", "\0", "\x0b", "\x1f", "\x7f", "&", "%", "\\", "-", "_", "9",
    "a b c", "x y z w", "a\nb\nc", "a1b2c", "ab c d", "word", "Base64,", "64,", "A" * 15, "/+",
)  # fmt: skip
TEXT = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.text(st.characters(max_codepoint=127), max_size=40),
)


@given(TEXT | st.text("ab é*~-\n\u4e2d·<b>&%aGVsbG8", max_size=24))
@example("a b c")
@example("x" * 16)
@example("0*0")
@example("a-\nb")
@example("\uff0ct h e")
@example("é~~é")
def test_prefilter_matches_each_disguise(text: str) -> None:
    hits = disguises.DISGUISES.find_candidates(encode_utf8(text))

    assert disguises.ESCAPED in hits or not (
        [*disguises.find_escapes(text)] or re.search(f"[{CONTROLS}]", text)
    )
    assert disguises.ENCODED in hits or not [*base64_text.find_base64_runs(text)]
    assert disguises.MARKED in hits or not dropped(text)
    assert disguises.SEPARATED in hits or not [*disguises.find_letter_gaps(text)]
    assert hits or not text.isascii() or disguises.has_no_disguise(text.encode())


@for_each(
    "text", ["two words, in a row.", "U.S. is a b", "x" * 15, "2 * 3 < 4", "日本語です", "größer"]
)
def test_prefilter_passes_plain_text(text: str) -> None:
    assert disguises.DISGUISES.find_candidates(encode_utf8(text)) == []


@given(st.lists(TEXT, max_size=3))
def test_lines_with_one_reading_have_no_other(texts: list[str]) -> None:
    if disguises.has_no_disguise("\n".join(texts).encode()):
        assert all(len(build_views(text)) == 1 for text in texts)
