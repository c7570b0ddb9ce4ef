"""What is in each match of a pattern, of single characters."""

from __future__ import annotations

import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.matching.needed_signs import ASCII, needed_signs
from proxy.guardrails.matching.re2set import PatternSet, Prefilter
from tests.for_each import for_each


@for_each(
    ("patterns", "signs"),
    [
        ([r"[\pL\pN._]+@[a-z]+"], "@"),
        ([r"[0-9]{2}", "a?@"], "0123456789@"),
        (["x|yz"], "xy"),
        (["(?:a|[bc]){0,3}d"], "d"),
        (["(?i)k+"], "kK"),
        ([], ""),
    ],
)
def test_the_fewest_characters_of_which_one_is_there(patterns: list[str], signs: str) -> None:
    assert needed_signs(patterns) == frozenset(signs)


@for_each("pattern", ["a*", r"\b", "(?:a|b?)", "^$"])
def test_what_may_be_empty_needs_nothing(pattern: str) -> None:
    assert needed_signs([pattern]) == ASCII


PIECES = st.sampled_from(["ab", "[c-e]", "(?:d|ef)", "g?", "(?:hi)*", "o{2}", "(?:p|)", "@+"])
PATTERNS = st.lists(st.lists(PIECES, min_size=1, max_size=4).map("".join), max_size=3)


@given(PATTERNS, st.text("abcdefghiop@ \n", max_size=16))
def test_lines_without_a_sign_have_no_match(patterns: list[str], text: str) -> None:
    found = any(re2.search(pattern, text) for pattern in patterns)
    prefilter = Prefilter((PatternSet(patterns).sieve,)).where(needed_signs(patterns))

    assert not found or not needed_signs(patterns).isdisjoint(text) or not text
    hits = any(match(text.encode()) != nothing for match, nothing in prefilter.sieves)
    assert hits >= (found and bool(text))
    assert prefilter(text.encode()) >= (found and bool(text))
