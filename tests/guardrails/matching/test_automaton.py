"""The automaton of a pattern, held against RE2 itself: it finds where RE2 finds."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.matching.automaton import MAX_PLACES, Automaton
from tests.for_each import for_each


def first_end(pattern: str, text: str) -> int | None:
    """Return where the first match ends, in a text of the automaton's letters."""
    automaton = Automaton(pattern)
    state, before, end = automaton.begin, "", None
    for at, letter in enumerate([*text, ""]):
        step = automaton.step(state, before, letter)
        end = at if step.matched else end
        state, before = step.after, letter
        if not state:
            break
    return end


LEAVES = ["a", "b", ".", "[ab]", r"\w", "é", r"\x61", r"\pL", r"\Qab\E", "[^]b]", "", "(?i:A)"]
EDGES = ["^", "$", r"\b", r"\B", r"\A", r"\z", "(?m)^", "(?m:$)", "(?U)", "(?i)", "(?s-i)"]
REPEATS = ["?", "*", "+", "{2}", "{1,3}", "{2,}", "{0}", "??", "*?", "+?", "{0,2}?"]
PIECES = st.recursive(
    st.sampled_from([*LEAVES, *EDGES]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda one: f"(?:{one[0]}){one[1]}"),
    ),
    max_leaves=8,
)


@for_each("pattern", ["(?:.??)*", "(?:a|b*)*?c", "(?:a??){2,}", "(?:(?:a?)+?b?)*"])
def test_what_repeats_nothing_is_left_as_re2_leaves_it(pattern: str) -> None:
    for text in ("", "0", "aab", "abc", "c"):
        found = re2.search(pattern, text)

        if set(text) <= set(Automaton(pattern).letters):
            assert first_end(pattern, text) == (found.end() if found else None)


@given(PIECES, st.data())
def test_the_first_match_ends_where_that_of_re2_ends(pattern: str, data: st.DataObject) -> None:
    letters = Automaton(pattern).letters
    if r"\B" in pattern:  # RE2 finds one between the bytes of a character, too
        letters = "".join(filter(str.isascii, letters))
    text = data.draw(st.text(letters, max_size=20))

    found = re2.search(pattern, text)

    assert first_end(pattern, text) == (found.end() if found else None)


@for_each(
    ("pattern", "letters"),
    [(".", "0\n"), ("[a-q]x", "0ax"), (r"\pL", "0a"), (r"(?i)a\b", "0a!\n"), ("[ж-ю]", "0ж")],
)
def test_one_letter_stands_for_all_that_are_not_told_apart(pattern: str, letters: str) -> None:
    assert sorted(Automaton(pattern).letters) == sorted(letters)


def test_repeats_are_written_out_up_to_a_bound() -> None:
    Automaton("a{900}" * (MAX_PLACES // 900))
    with pytest.raises(ValueError, match="more than 10,000 states"):
        Automaton("a{900}" * (MAX_PLACES // 900 + 1))
    with pytest.raises(ValueError, match="more than 10,000 states"):
        Automaton("(?:[a-z]{9}|mill races){999}")


def test_thousands_of_groups_are_no_depth() -> None:
    assert first_end("(?:" * 500 + "a" + ")" * 500, "0a") == 2
