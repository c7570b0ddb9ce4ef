"""What a match may be so far, held against RE2: each beginning that ends with white space."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.kinds.code import CUES, FENCE
from proxy.guards.kinds.pii import EMAIL, IP6
from proxy.guards.kinds.urls import URL_START
from proxy.guards.matching import gitleaks, numbers
from proxy.guards.matching.partial_match import MIN_LENGTH, beginnings
from proxy.guards.matching.pattern_syntax import SPACES
from tests.for_each import for_each
from tests.guards.samples import sample


@for_each(
    ("pattern", "started", "other_items"),
    [
        ("blue whale", ["blue ", "a blue "], ["blu ", "blue whale ", " "]),
        (r"(?i)blue\s{1,8}whale", ["BLUE ", "blue\n ", "blue        "], ["blue         "]),
        ("a b|c d e", ["a ", "c ", "c d "], ["a b ", "d "]),
        ("(?:a ?b){2}", ["a ", "aba "], ["abab "]),
        ("x(?: y){2,3}z", ["x ", "x y ", "x y y "], ["x y y y "]), ("a +", ["a ", "a   "], ["b "]),
        ("a +b", ["a ", "a   "], ["a b "]), ("[^q]{3}z", ["o \n", "abo "], ["oq "]),
        (r"(?m)^if \w+$", ["if ", "then\nif "], ["an if ", "if so "]),
        (r"\Qa b\E*c", ["a "], ["b "]), (r"(?P<is>a)(?i: B)(?-i)c d", ["a ", "a bc "], ["a bC "]),
        (r"(?i)a (?-i:[^a-z]b) c", ["A ", "a Cb "], ["a cb ", "a CB "]),
    ],
)  # fmt: skip
def test_a_beginning_is_known_where_it_ends_with_white_space(
    pattern: str, started: list[str], other_items: list[str]
) -> None:
    known_text = beginnings(pattern)
    assert known_text is not None

    for text in started:
        assert re2.search(known_text, text), text
    for text in other_items:
        assert re2.search(known_text, text) is None, text


@for_each(
    "pattern",
    [
        "whale", r"\bgh_[a-z0-9]{36}(?:[^\w+=(-]|$)", r"[\s(]//\w+", EMAIL, URL_START, IP6, r"a\tb",
        " ",
    ],
)  # fmt: skip
def test_nothing_is_under_way_behind_a_word_of_what_has_no_white_space_inside(pattern: str) -> None:
    assert beginnings(pattern) is None


PATTERNS = [
    numbers.RUN,
    *(rule.pattern for rule in gitleaks.read_rules() if beginnings(rule.pattern)),
    *(rf"(?m){cue}" for cues in CUES.values() for cue in cues if beginnings(f"(?m){cue}")),
    FENCE,
]


def texts(pattern: str, chance: random.Random) -> Iterator[str]:
    for _ in range(5):
        text = sample(pattern.replace("(?i)", "").replace("(?m)", ""), chance)
        if re2.search(pattern, text) is not None:
            yield text


@for_each("pattern", PATTERNS, ids=range(len(PATTERNS)))
def test_each_beginning_of_a_match_is_known(pattern: str) -> None:
    partial_pattern = re2.compile(beginnings(pattern) or "")

    for text in texts(pattern, random.Random(pattern)):
        match = re2.search(pattern, text)
        for end in range(match.start() + MIN_LENGTH, match.end()):
            if text[end - 1] in SPACES:
                partial = partial_pattern.search(text[:end])
                assert partial is not None, text[:end]
                assert partial.start() <= match.start(), text[:end]


PIECES = st.sampled_from(
    ["a", "b", " ", r"\s", "[ab ]", "[^a]", ".", "(?:a| b)", "(?:ab )", r"\b", "^", "(?: a?)"]
)
TIMES = st.sampled_from(["", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "{0,2}?"])
RESULT = st.lists(st.tuples(PIECES, TIMES), min_size=1, max_size=4).map(
    lambda parts: "".join(p if p in (r"\b", "^") else p + times for p, times in parts)
)


@given(st.lists(RESULT, min_size=1, max_size=2).map("|".join), st.text("ab \n", max_size=12))
def test_what_a_pattern_matches_has_begun_as_is_told(pattern: str, text: str) -> None:
    partial_pattern = beginnings(pattern)
    full_pattern = re2.compile(pattern)
    for start, upto in itertools.combinations(range(len(text) + 1), 2):
        if full_pattern.fullmatch(text, start, upto) is None:
            continue
        for end in range(start + MIN_LENGTH, upto):
            if text[end - 1] in SPACES:
                partial = re2.search(partial_pattern or "x", text[:end])
                assert partial is not None
                assert partial.start() <= start
