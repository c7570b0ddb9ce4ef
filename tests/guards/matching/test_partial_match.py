"""Partial matches at the end of a text."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator

import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.kinds.code import FENCE_PATTERN, LINE_PATTERNS, Code
from proxy.guards.kinds.keywords import Keywords
from proxy.guards.kinds.pii import Pii
from proxy.guards.kinds.secrets import Secrets
from proxy.guards.kinds.urls import Urls
from proxy.guards.matching import gitleaks, numbers
from proxy.guards.matching.partial_match import (
    MIN_PARTIAL_CHARS,
    CombinedPartialMatcher,
    StreamPattern,
    StreamPatternMatcher,
    build_partial_pattern,
)
from proxy.guards.matching.pattern_syntax import SPACE_CHARACTERS
from proxy.types.partial_matcher import PartialMatcher, get_partial_matcher
from tests.for_each import for_each
from tests.guards.kinds.test_secrets import ELSEWHERE, RULES, pem
from tests.guards.samples import sample

PII, URLS, CODE, SECRETS = Pii(), Urls(deny=["mill.example"]), Code(), Secrets()
KEY = "".join(["Ab3xZ9", "qLm2Pw", "8sKd5"])
WORDS = Keywords("words", ["blue whale", "hippo"], ["fox +trot"])


def open_part(matcher: PartialMatcher | None, text: str, start: int = 0) -> str:
    assert matcher is not None
    return text[matcher.find_partial_match(text, start) :]


@for_each(
    ("detector", "text", "pending"),
    [
        (PII, "Members may borrow books ", ""), (PII, "call 555 ", "555 "),
        (PII, "call +49 30 901820 today ", "+49 30 901820 today "),
        (PII, f"call +49 30 901820 {'and then the others ' * 4}", ""),
        (PII, "mail ada@mill.example ", ""), (PII, "to DE89 3704 ", "DE89 3704 "),
        (PII, "to ZZ89 are ", ""), (PII, "für 12\u00a03 ", "12\u00a03 "),
        (URLS, "see https://mill.example/x ", ""), (WORDS, "a hippo and a blue \n", "blue \n"),
        (WORDS, "a fox  ", "fox  "), (WORDS, "the bluewhale ", ""),
        (SECRETS, "Members may borrow books ", ""),
        (SECRETS, "and the api key is ", "api key is "),
        (SECRETS, f"and the api key {'of the house ' * 3}", ""),
        (SECRETS, f"key: {KEY} then ", ""),
        (SECRETS, f"import {{ key, {KEY} }} from ", f"key, {KEY} }} from "),
        (SECRETS, f"import {{ key, {KEY} }} as ", ""), (SECRETS, f"key: {KEY}\nthen\nmore ", ""),
        (SECRETS, "a -----BEGIN RSA ", "-----BEGIN RSA "),
        (SECRETS, f"a {pem()[:200]}\n", f"{pem()[:200]}\n"), (SECRETS, f"a {pem()}\nso ", ""),
        (SECRETS, "kind: Secret\nmetadata: x ", "kind: Secret\nmetadata: x "),
        (SECRETS, "the data: ", "data: "),
        (CODE, "so it is\n```python\nimport os\n", "```python\nimport os\n"),
        (CODE, "so it is\n```python\nimport os\n```\nand ", ""),
        (CODE, "so it is\n```\n ", "```\n "), (CODE, "so it is\n```\n \n", ""),
        (CODE, "SELECT a, b ", "SELECT a, b "), (CODE, "a select few ", ""),
    ],
)  # fmt: skip
def test_partial_match_at_the_end_is_open(detector: object, text: str, pending: str) -> None:
    matcher = get_partial_matcher(detector)

    assert open_part(matcher, text) == pending
    if matcher is not None and pending and text.isascii():
        assert matcher.ends_in_partial_match(text.encode())


def test_partial_match_before_the_start_is_ignored() -> None:
    text = "call 555 and 12 "

    assert open_part(PII.partial_matcher, text, text.index("and")) == "12 "


def test_match_is_open_until_later_text_decides() -> None:
    matcher = StreamPatternMatcher(
        [StreamPattern("ab", chars_after=3), StreamPattern("x+", marker_pattern="x")]
    )

    assert [open_part(matcher, text) for text in ("ab ", "ab  ", "ab   ")] == ["ab ", "ab  ", ""]
    assert open_part(matcher, "ab   ab ") == "ab "
    assert open_part(matcher, "äb ab ", 3) == "ab "
    assert matcher.may_contain_match("ab ")
    assert not matcher.may_contain_match("a b ")


def test_combined_matchers_are_open_if_one_is() -> None:
    matcher = CombinedPartialMatcher(
        [StreamPatternMatcher([StreamPattern("a b")]), StreamPatternMatcher([StreamPattern("c d")])]
    )

    assert (matcher.ends_in_partial_match(b"x c "), matcher.ends_in_partial_match(b"x y ")) == (
        True,
        False,
    )
    assert open_part(matcher, "a c ") == "c "


def test_assigned_value_contains_no_white_space() -> None:
    """A name before its value is a partial match. The value ends with its word."""
    for rule in gitleaks.read_rule_file():
        if rule.name_pattern is not None:
            value = re.split(r"\[\\x60'\"\\s=\]\{0,5\}", rule.pattern, maxsplit=1)[1]
            assert build_partial_pattern(f"x{value}") is None, rule.kind


@for_each("kind", sorted(RULES.keys() - ELSEWHERE.keys() - gitleaks.RULES_WITH_DISTANT_KEYWORD))
def test_match_of_a_rule_contains_its_keyword(kind: str) -> None:
    """Otherwise a stream would wait for a keyword after the match."""
    rule = next(
        entry for entry in gitleaks.read_gitleaks_and_betterleaks_rules() if entry.kind == kind
    )
    chance = random.Random(kind)
    for _ in range(20):
        text = sample(RULES[kind]["regex"], chance).encode()
        spans = rule.compiled.search(text)
        if spans is not None:
            match = text[slice(*spans[0])].lower()
            assert any(keyword in match for keyword in rule.keywords), match


def test_many_long_words_still_have_a_matcher() -> None:
    words = [f"{'word' * 20}{index} {'other' * 20}{index}" for index in range(30)]

    assert Keywords("many", words).partial_matcher is not None
    assert get_partial_matcher(object()) is None


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
def test_partial_pattern_matches_prefixes_before_white_space(
    pattern: str, started: list[str], other_items: list[str]
) -> None:
    known_text = build_partial_pattern(pattern)
    assert known_text is not None

    for text in started:
        assert re2.search(known_text, text), text
    for text in other_items:
        assert re2.search(known_text, text) is None, text


PATTERNS = [
    numbers.DIGIT_RUN,
    *(rule.pattern for rule in gitleaks.read_rule_file() if build_partial_pattern(rule.pattern)),
    *(
        rf"(?m){cue}"
        for cues in LINE_PATTERNS.values()
        for cue in cues
        if build_partial_pattern(f"(?m){cue}")
    ),
    FENCE_PATTERN,
]


def texts(pattern: str, chance: random.Random) -> Iterator[str]:
    for _ in range(5):
        text = sample(pattern.replace("(?i)", "").replace("(?m)", ""), chance)
        if re2.search(pattern, text) is not None:
            yield text


@for_each("pattern", PATTERNS, ids=range(len(PATTERNS)))
def test_every_prefix_of_a_match_is_recognized(pattern: str) -> None:
    partial_pattern = re2.compile(build_partial_pattern(pattern) or "")

    for text in texts(pattern, random.Random(pattern)):
        match = re2.search(pattern, text)
        for end in range(match.start() + MIN_PARTIAL_CHARS, match.end()):
            if text[end - 1] in SPACE_CHARACTERS:
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
def test_partial_pattern_covers_every_match_at_white_space(pattern: str, text: str) -> None:
    partial_pattern = build_partial_pattern(pattern)
    full_pattern = re2.compile(pattern)
    for start, upto in itertools.combinations(range(len(text) + 1), 2):
        if full_pattern.fullmatch(text, start, upto) is None:
            continue
        for end in range(start + MIN_PARTIAL_CHARS, upto):
            if text[end - 1] in SPACE_CHARACTERS:
                partial = re2.search(partial_pattern or "x", text[:end])
                assert partial is not None
                assert partial.start() <= start
