"""The longest match of a pattern, held against RE2 itself."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.matching.tokens import check_syntax
from proxy.guardrails.matching.within_match import longest
from tests.for_each import for_each


@for_each(
    ("pattern", "length"),
    [
        ("", 0),
        ("water", 5),
        ("mill|watermill", 9),
        ("w(?:at|heel)er?", 7),
        (r"\bmill\b", 4),
        (r"^a$|\Ab\z|\Bc", 1),
        (r"a{3}b{2,5}c?", 9),
        ("a{2,}", None),
        ("a*", None),
        ("a+?b", None),
        ("(?:a*)?", None),
        ("(?:ab{3}){4}", 16),
        ("(?:^)*x", 1),
        ("a{,5}", 5),
        ("a{b}", 4),
        (r"[]a-z]{2}", 2),
        (r"[^]a]", 1),
        (r"[[:alpha:]\]]{3}", 3),
        (r"\pL\p{Greek}\P{Lu}", 3),
        (r"\x41\x{10FFFF}\101", 3),
        (r"\Qa.*b\Ec", 5),
        (r"\Q(((", 3),
        (r"(?i)AB(?-i)c", 3),
        (r"(?is-m:ab)", 2),
        (r"(?P<mill>ab)(?<wheel>c)", 3),
        (r"\(\)\|\*", 4),
        ("(|a|bb)", 2),
    ],
)
def test_the_longest_match_is_read_off_the_pattern(pattern: str, length: int | None) -> None:
    re2.compile(pattern)

    assert longest(pattern) == length


def test_deeply_nested_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        check_syntax("(?:" * 5000 + "a" + ")" * 5000)


def test_half_characters_are_refused() -> None:
    with pytest.raises(ValueError, match="byte"):
        check_syntax(r"a\Cb")


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
def test_no_match_is_longer_than_said(pattern: str, text: str) -> None:
    bound = longest(pattern)
    assert bound is not None

    for match in re2.compile(pattern).finditer(text):
        assert match.end() - match.start() <= bound
