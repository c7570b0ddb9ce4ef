"""Readings of a text, and the original position of each character."""

from __future__ import annotations

# ruff: noqa: RUF001  # disguised letters are the subject
import base64
import re
from collections.abc import Callable
from unicodedata import decimal, normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.guards.text.base64_text import MIN_RUN_CHARS
from proxy.guards.text.disguises import INVISIBLE, LOOK_ALIKES, find_letter_gaps
from proxy.guards.text.normalize import (
    MAX_LAYERS,
    View,
    _apply_edits,
    _build_views_and_steps,
    _iter_views_without_markup,
    build_partial_readings,
    build_views,
    normalize_word,
)
from tests.for_each import for_each

COUNT = "\u0336\u0315" * 40
ODD = st.text(
    st.sampled_from(
        "abcs eéßАаѕ&;#x1%C3a9\\u0073{}.-=*`~<>/!\n\rﬁｓ①각\u1100\u1161\u11a8"
        "\u200b\u0301\u0315\u0316\u0336\u00ad\U0001f600\U000e0073\ufe0f\uff9e"
    ),
    max_size=30,
)


def spots(text: str, word: str) -> list[str]:
    """Find a word in all readings of a text. Return the original text at its position."""
    matches = []
    for view in build_views(text):
        index = view.folded.find(word)
        if index >= 0:
            start, end = view.original_span(index, index + len(word))
            matches.append(text[start:end])
    return matches


@for_each(
    ("disguised", "place"),
    [
        ("a secret", "secret"), ("a SeCrEt", "SeCrEt"), ("a ｓｅｃｒｅｔ.", "ｓｅｃｒｅｔ"),
        ("a 𝖘𝖊𝖈𝖗𝖊𝖙.", "𝖘𝖊𝖈𝖗𝖊𝖙"), ("a \u200bs\u200becret\u200b.", "s\u200becret"),
        ("a sec\u00adret", "sec\u00adret"), ("a s\u202eecret", "s\u202eecret"),
        ("a s\U000e0041ecret", "s\U000e0041ecret"), ("a ѕесrеt", "ѕесrеt"),
        ("a ѕЕСRЕT", "ѕЕСRЕT"), ("a s&#101;cret&#33;", "s&#101;cret"),
        ("a s&#x65;cret", "s&#x65;cret"), ("a %73%65cret%21", "%73%65cret"),
        ("a \\u0073ecret", "\\u0073ecret"), ("a \\x73\\x65cret", "\\x73\\x65cret"),
        ("a \\u{73}\\u{000065}cret", "\\u{73}\\u{000065}cret"),
        ("a \\U00000073ecret", "\\U00000073ecret"),
        ("a &#115&#101&#99&#114&#101&#116", "&#115&#101&#99&#114&#101&#116"),
        ("a &#115 &#x73&#x65&#x63ret", "&#x73&#x65&#x63ret"), ("a s&shyecret", "s&shyecret"),
        ("a se**cr**et", "se**cr**et"), ("a s*e`c`r*et", "s*e`c`r*et"),
        ("a se~~cr~~et", "se~~cr~~et"), ("a **se**cret", "se**cret"),
        ("a <b>se</b>cret", "se</b>cret"), ("a se<b>cr</b>et", "se<b>cr</b>et"),
        ("a se<span class='x' id=y>cr</SPAN >et", "se<span class='x' id=y>cr</SPAN >et"),
        ("a se<!-- it -->cret", "se<!-- it -->cret"),
        ("a se<b><i>**cr</i></b>**et", "se<b><i>**cr</i></b>**et"),
        ("a se&lt;b&gt;cret", "se&lt;b&gt;cret"), ("a ѕе<wbr/>сrеt", "ѕе<wbr/>сrеt"),
        ("a sec-\nret", "sec-\nret"), ("a sec-  \r\n   ret", "sec-  \r\n   ret"),
        ("a sec\u2010\nret", "sec\u2010\nret"), ("a s e c r e t!", "s e c r e t"),
        ("a s.e.c.r.e.t!", "s.e.c.r.e.t"), ("a s_e-c r*e·t!", "s_e-c r*e·t"),
        ("a ѕ е с r е t!", "ѕ е с r е t"), ("a s\u0336e\u0336cret", "s\u0336e\u0336cret"),
        ("a se\u0301cre\u0301t", "se\u0301cre\u0301t"), (f"a sec{COUNT}ret", f"sec{COUNT}ret"),
        ("a \U000e0073\U000e0065\U000e0063\U000e0072\U000e0065\U000e0074.", None),
        ("a \\udb40\\udc73&#xe0065;\U000e0063\U000e0072\U000e0065\U000e0074.", None),
    ],
)  # fmt: skip
def test_disguised_word_is_located(disguised: str, place: str | None) -> None:
    assert place or disguised[2:-1] in spots(disguised, "secret")
    assert set(spots(disguised, "secret")) == {place or disguised[2:-1]}


@pytest.mark.parametrize(
    "text", ["internationalization", "deadbeefdeadbeef0", "/usr/local/share/doc"]
)
def test_long_words_are_no_base64(text: str) -> None:
    assert len(build_views(text)) == 1


@for_each(
    "text",
    [
        "", "plain words, 100% of AT&T", "Straße, año, naïve", "C:\\new", "日本語", "U.S. is a b",
        "**Note**: *this* is `code`, ~~not~~.", "2 * 3 < 4 and 5 > 4, a ~ b",
        "- one\n- two\n---\nend",
        "<p>One</p><p>two</p>", "<td>4111</td><td>1111</td>", "well-known -- and so on -\nnow",
        "**größer** <b>Maß</b>, <i>é</i>", "a_b __init__ snake_case", "0123456789abcdef01234567",
    ],
)  # fmt: skip
def test_text_without_disguise_reads_as_itself(text: str) -> None:
    assert {view.cased for view in build_views(text)} == {text}


def test_first_reading_is_the_text_itself() -> None:
    assert build_views("ПРИВЕТ")[0].folded == "привет"
    assert build_views("año ano")[0].folded == "año ano"


def test_policy_words_are_folded_like_texts() -> None:
    for word in ("ПРИВЕТ", "Привет", "привет"):
        assert normalize_word(word) in build_views("привет")[-1].folded


def test_digits_of_other_scripts_are_digits() -> None:
    assert View.build_normalized("٤١١١").cased == "4111"


def test_json_escapes_are_decoded_in_strings_only() -> None:
    assert View.build_normalized(r"a\/b\n\\u0073 \\\x73", in_json=True).cased == "a/b\ns \\s"
    assert View.build_normalized(r"a\/b").cased == r"a\/b"


def test_incomplete_run_is_not_decoded() -> None:
    run = base64.b64encode(b"a secret, it is").decode()

    assert len(build_views(run)) == 2
    assert len(build_partial_readings(run, "A").views) == 1


@given(st.text())
@example("\uff76\uff9e")
@example("e\u0301\u0302")
@example("각")
@example("e" + "\u0315" * 15 + "\u0316" * 15)
def test_clusters_compose_as_the_whole_text_does(text: str) -> None:
    text = text.translate({ord(name): None for name in "&%\\"})
    full_text = normalize("NFKC", re.sub(f"[{INVISIBLE}]", "", text)).translate(LOOK_ALIKES)
    digits = "".join(str(decimal(name, name)) for name in full_text)

    assert View.build_normalized(text).cased == digits


@given(ODD)
def test_positions_of_a_reading_are_ordered(text: str) -> None:
    for view in build_views(text):
        assert len(view.folded) == len(view.cased)
        past = (0, 0)
        for place in range(len(view.cased)):
            start, end = view.original_span(place, place + 1)
            assert past[0] <= start < end <= len(text)
            assert view.index_of_original(start) <= place
            past = (start, end)


@given(ODD, ODD)
@example("%C3", "%A9")
@example("x \\ud83d", "\\ude00")
@example("a b", " c")
@example("a b c", "at")
@example("각"[:1], "ᆨ")
@example("&amp", ";")
@example("\\", "u0073")
@example("s e c r e t%73", "")
@example("C\\\xadА", " C")
@example("xe", "%CC%81")
@example("xe%CC%8", "1")
@example("a" + "\u0315" * 29, "\u0316" * 3)
@example("a" + "\u0315" * 30, "\u0316" * 3)
@example("a" + "\u0315" * 31, "\u0316" * 3)
@example("\u0105" + "\u0336\u200b" * 31, "\u0316")
def test_settled_text_is_independent_of_what_follows(text: str, more: str) -> None:
    upto = build_partial_readings(text).settled_end

    for now, view in (
        (View.build_normalized(text), View.build_normalized(text + more)),
        *zip(_closest(text), _closest(text + more), strict=True),
    ):
        stored_text = now.cased[: now.index_of_original(upto)]
        assert view.cased[: view.index_of_original(upto)] == stored_text


def _closest(text: str) -> tuple[View, View, View]:
    """Return the readings that are farthest from a text, be they the same: letters apart joined,
    what stands within words dropped, and of hyphens the end of the line alone."""
    bare = _build_views_and_steps(
        text, in_json=False, begins_in_base64=False, max_run=None
    ).without_marks
    joined = [*_iter_views_without_markup(bare), bare, bare][:2]
    if len([*_iter_views_without_markup(bare)]) == 1:
        joined = joined[:1] * 2
    return _apply_edits(bare, find_letter_gaps(bare.cased)), joined[0], joined[1]


@for_each(
    "encode",
    [
        lambda text: text.encode().hex(),
        lambda text: text.encode().hex().upper(),
        lambda text: "0x" + text.encode().hex() + "f",
        lambda text: text.encode("utf-16le").hex(),
        lambda text: _base64(_base64(text)),
        lambda text: _base64(_base64(_base64(text))),
        lambda text: _base64(text.encode().hex()),
        lambda text: _base64(f"here: {text.encode().hex()}").encode().hex(),
        lambda text: _base64(text.replace("e", "&#101;")),
        lambda text: _base64(text.replace("e", "е")),
        lambda text: _base64(text.replace("c", "<b>c</b>")),
        lambda text: "".join(f"\\x{ord(each):02x}" for each in _base64(text)),
    ],
)
def test_nested_encodings_are_decoded(encode: Callable[[str], str]) -> None:
    text = encode("it is a secret of all")
    matches = spots(f"see {text} now", "secret")

    assert matches
    assert all(name in text and len(name) > 30 for name in matches)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_number_of_decoded_layers_is_bounded() -> None:
    text = "it is a secret"
    for _ in range(MAX_LAYERS):
        text = _base64(text)

    assert spots(text, "secret") == [text]
    assert spots(_base64(text), "secret") == []


def test_hyphen_at_a_line_end_is_optional() -> None:
    assert spots("it is well-\nknown", "well-known") == ["well-\nknown"]
    assert spots("it is well-\nknown", "wellknown") == ["well-\nknown"]


@given(
    st.text(alphabet="QUJD+/a1=", min_size=1, max_size=40) | st.text("46a8", max_size=40),
    st.text(alphabet="QUJD ", max_size=8),
)
def test_ended_base64_is_settled(text: str, more: str) -> None:
    read = build_partial_readings(text)
    upto, open_run = read.settled_end, read.open_run_start
    ended = [view.encoded_span for view in build_views(text + more) if view.encoded_span]

    assert all(end <= upto or start >= open_run for start, end in filter(None, ended))


@for_each("number", ["0", "-1.5", "+123456789e+12", "1234567890", "1.2.3.4", "1e5"])
def test_number_has_one_reading(number: str) -> None:
    assert [view.cased for view in build_views(number)] == [number]
    assert View.build_normalized(number).cased == number
    assert len(number) < MIN_RUN_CHARS


@for_each("sign", ["", "，", "“", "ผู", "。", "（"])
def test_separated_letters_follow_any_sign(sign: str) -> None:
    """The reading of a prefix does not depend on how many separated letters follow."""
    assert any("the" in view.cased for view in build_views(f"{sign}t h e"))
