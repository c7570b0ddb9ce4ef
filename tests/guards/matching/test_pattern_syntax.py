"""Analysis of RE2 patterns: match length, unspaced letters, relaxed repetitions."""

from __future__ import annotations

from math import inf

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.matching.pattern_syntax import (
    UNSPACED_LETTER,
    compute_max_match_length,
    parse_pattern,
    reject_deep_groups_and_bytes,
    relax_repetitions,
    rfind_unspaced_script_letter,
)
from tests.for_each import for_each


@for_each(
    ("pattern", "length"),
    [
        ("", 0), ("water", 5), ("mill|watermill", 9), ("w(?:at|heel)er?", 7), (r"\bmill\b", 4),
        (r"^a$|\Ab\z|\Bc", 1), (r"a{3}b{2,5}c?", 9), ("a{2,}", None), ("a*", None), ("a+?b", None),
        ("(?:a*)?", None), ("(?:ab{3}){4}", 16), ("(?:^)*x", 1), ("a{,5}", 5), ("a{b}", 4),
        (r"[]a-z]{2}", 2), (r"[^]a]", 1), (r"[[:alpha:]\]]{3}", 3), (r"\pL\p{Greek}\P{Lu}", 3),
        (r"\x41\x{10FFFF}\101", 3), (r"\Qa.*b\Ec", 5), (r"\Q(((", 3), (r"(?i)AB(?-i)c", 3),
        (r"(?is-m:ab)", 2), (r"(?P<mill>ab)(?<wheel>c)", 3), (r"\(\)\|\*", 4), ("(|a|bb)", 2),
    ],
)  # fmt: skip
def test_longest_match_is_computed(pattern: str, length: int | None) -> None:
    re2.compile(pattern)

    assert compute_max_match_length(parse_pattern(pattern)) == (inf if length is None else length)


@for_each(
    ("pattern", "problem"),
    [("(?:" * 5000 + "a" + ")" * 5000, "nested more than 64 deep"), (r"a\Cb", "byte")],
)
def test_deep_groups_and_bytes_are_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        reject_deep_groups_and_bytes(pattern)


PIECES = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", r"\w", "é", r"\x61", r"\pL", r"\Qab\E", "[^]b]", "^"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["?", "{2}", "{1,3}", "{0,2}?"])).map(
            lambda one: f"(?:{one[0]}){one[1]}"
        ),
    ),
    max_leaves=8,
)


@given(PIECES, st.text("abé", max_size=40))
def test_no_match_is_longer_than_computed(pattern: str, text: str) -> None:
    bound = compute_max_match_length(parse_pattern(pattern))
    assert bound < inf

    for match in re2.compile(pattern).finditer(text):
        assert match.end() - match.start() <= bound


@for_each(
    ("text", "start", "end", "place"),
    [
        ("河馬 is it", 0, 8, 1), ("河馬 is it", 0, 1, 0), ("河馬 is it", 2, 8, -1),
        ("it is a hippo", 0, 13, -1), ("\n河\nx", 0, 4, 1), ("", 0, 0, -1),
    ],
)  # fmt: skip
def test_last_unspaced_letter_is_found(text: str, start: int, end: int, place: int) -> None:
    assert rfind_unspaced_script_letter(text, start, end) == place


def test_letters_of_spaced_scripts_are_not_unspaced() -> None:
    kinds = {letter: bool(UNSPACED_LETTER.match(letter)) for letter in "河のノผកမaéя한ا，1"}  # noqa: RUF001

    assert kinds == {letter: letter in "河のノผកမ" for letter in kinds}


LETTERS = "aB7_-. é\u0416\u4e2d\u0663\u212a\u017f{,}"
RELAXED_PIECES = (
    *("a", "b", r"\w", r"\pL", r"\p{L}", r"\pN", r"\PL", r"[^\pL\pN]", r"[\pL\pN_]", r"[^\w\pL]"),
    *(r"[\pN.-]", r"[a\]{3}]", r"\{", r"\x{e9}", r"[\x{410}-\x{44f}]", r"[^\PN]", ".", r"\Qa{9}\E"),
)
REPEATS = ("", "", "?", "+", "*", "{2}", "{1,3}", "{0,20}", "{1,40}?", "{2,}", "{70}", "{66,90}")
FLAGS = ("", "(?i)", "(?s)")


@st.composite
def patterns(draw: st.DrawFn) -> str:
    def part(depth: int) -> str:
        if depth and draw(st.booleans()):
            inner = "|".join(part(depth - 1) for _ in range(draw(st.integers(1, 2))))
            return f"(?:{inner}){draw(st.sampled_from(('', '?', '{0,2}', '{1,12}')))}"
        return draw(st.sampled_from(RELAXED_PIECES)) + draw(st.sampled_from(REPEATS))

    return draw(st.sampled_from(FLAGS)) + "".join(part(2) for _ in range(draw(st.integers(1, 4))))


@given(patterns(), st.text(LETTERS, max_size=24), st.integers(1, 9))
def test_relaxed_pattern_matches_whenever_the_original_does(
    pattern: str, text: str, times: int
) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        exact = re2.compile(pattern, options)
        relaxed = re2.compile(relax_repetitions(pattern), options)
    except re2.error:  # RE2 refuses the product of nested repetitions
        return
    text *= times
    if exact.search(text) is not None:
        assert relaxed.search(text) is not None


def test_long_repeats_are_relaxed() -> None:
    assert relax_repetitions(r"key[a-z]{17,600}=[0-9a-f]{64}") == r"key[a-z]{17,}=[0-9a-f]{64}"
    assert relax_repetitions(r"[0-9a-f]{80}\{1,600}[{1,600}]a{2000}") == (
        r"[0-9a-f]{64,}\{1,600}[{1,600}]a{2000}"
    )
