"""What is cheap to compile matches wherever the pattern does that it stands for."""

from __future__ import annotations

import random

import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.kinds.injection import language_rules
from proxy.guards.matching.pattern_syntax import relax
from proxy.guards.matching.re2set import PatternSet
from tests.for_each import for_each

RULES = language_rules("en").rules
LETTERS = "aB7_-. é\u0416\u4e2d\u0663\u212a\u017f{,}"
PIECES = (
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
        return draw(st.sampled_from(PIECES)) + draw(st.sampled_from(REPEATS))

    return draw(st.sampled_from(FLAGS)) + "".join(part(2) for _ in range(draw(st.integers(1, 4))))


@given(patterns(), st.text(LETTERS, max_size=24), st.integers(1, 9))
def test_where_a_pattern_matches_its_relaxed_form_does(pattern: str, text: str, times: int) -> None:
    options = re2.Options()
    options.log_errors = False
    try:
        exact = re2.compile(pattern, options)
    except re2.error:  # repeats of repeats are counted further than RE2 takes
        return
    text *= times
    if exact.search(text) is not None:
        assert re2.compile(relax(pattern), options).search(text) is not None


@for_each(
    ("pattern", "wide"),
    [
        (r"key[a-z]{17,600}=", r"key[a-z]{17,}="),
        (r"[0-9a-f]{64}", r"[0-9a-f]{64}"),
        (r"[0-9a-f]{80}", r"[0-9a-f]{64,}"),
        (r"x{1,3}\{1,600}[{1,600}]", r"x{1,3}\{1,600}[{1,600}]"),
        (r"\pL+[^\pL\pN]{9,99}", r"\pL+[^\pL\pN]{9,}"),
        (r"\x{1F600}\PL[\PN]", r"\x{1F600}\PL[\PN]"),
        (r"a{2000}", r"a{2000}"),
    ],
)
def test_a_long_repeat_has_no_end(pattern: str, wide: str) -> None:
    assert relax(pattern) == wide


def test_within_ascii_a_set_tells_of_our_own_rules_what_they_say_themselves() -> None:
    chance, options = random.Random(7), re2.Options()
    options.case_sensitive = options.log_errors = False
    words = [word for rule in RULES for word in re2.findall("[a-z]{3,}", rule.pattern)]
    singles = [re2.compile(rule.pattern, options) for rule in RULES]
    pattern_set = PatternSet(f"(?i){rule.pattern}" for rule in RULES)
    for _ in range(200):
        text = " ".join(chance.choices(words, k=40))
        findings = {index for index, single in enumerate(singles) if single.search(text)}
        assert set(pattern_set.hits(text.encode())) == findings
