"""The rarest part of a pattern is in each of its matches, and is what plain texts have least."""

from __future__ import annotations

import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.kinds.injection import LONGEST
from proxy.guardrails.matching.injection_rules import RULES
from proxy.guardrails.matching.phrase_rules import PhraseRules
from proxy.guardrails.matching.rarest_part import rarest_part
from tests.for_each import for_each
from tests.guardrails.matching.test_injection_rules import ATTACKS

GAP = "(?:[a-z]+ ){0,5}?"
PLAIN = (
    "Hello, can you tell me where my order is? Please send the answer by mail: I read this on a "
    "train, and the number stands on the second page. Thank you for your message, as always."
)


@for_each(
    ("pattern", "part"),
    [
        ("reveal", "reveal"),
        (rf"\bsend {GAP}zebra", "zebra"),
        (rf"\bzebra {GAP}send", r"\bzebra "),
        (rf"(?:send|mail|post) {GAP}(?:gold|silver)", "(?:gold|silver)"),
        (rf"ab|cd {GAP}e", "(?:ab|cd )"),
        (f"zebra(?:{GAP}gnu)?you", "zebra"),
        (r"(?:gnu ){1,4}you", r"(?:gnu ){1,4}you"),
        (r"(?:gnu|[a-z]*){0,3}", ""),
        (f"{GAP}|gnu", ""),
        ("a.{0,80}zebra.{0,80}b", "zebra"),
        ("(?i)gnu", "(?i:g)(?i:n)(?i:u)"),
    ],
)
def test_the_part_that_plain_texts_have_least(pattern: str, part: str) -> None:
    assert rarest_part(pattern) == part


def test_a_part_is_of_the_case_that_its_pattern_is() -> None:
    part = rarest_part("(?-i:[^a-z])gnu", frozenset("i"))

    assert part == "(?-i:[^a-z])gnu"
    assert re2.search(f"(?i){part}", "ZGNU")


PIECES = st.sampled_from(
    [
        *("ab", "c", "(?:d|ef)", "g?", "(?:hi)*", "[jk]", "(?:lm|n)+", "o{2}", "(?:p|)", "^"),
        *(r"\b", "(?:a ){1,6}", "[a-z ]{0,9}", "(?:b(?:c ){0,7}d|e)"),
    ]
)


@given(st.lists(PIECES, min_size=1, max_size=6), st.text("abcdefghijklmnop ", max_size=24))
def test_where_it_is_not_the_pattern_is_nowhere(pieces: list[str], text: str) -> None:
    pattern = "".join(pieces)

    if re2.search(pattern, text):
        assert re2.search(rarest_part(pattern), text)


def words_of(pattern: str) -> list[str]:
    return [word for word in re2.split("[^a-z]+", pattern.lower()) if word]


VOCABULARY = sorted({word for rule in RULES for word in words_of(rule.pattern)})
PHRASES = st.lists(
    st.sampled_from([*VOCABULARY, "\n", ": ", "- ", "<!--", "](https://a.b/?c=", "\u00e4"]),
    max_size=12,
)


ALL, OPENED = PhraseRules(RULES, LONGEST), PhraseRules(RULES, LONGEST, opened=True)


@given(PHRASES.map(" ".join))
def test_rules_find_the_same_where_texts_are_read_for_their_rarest_parts_first(text: str) -> None:
    assert OPENED.find(text) == ALL.find(text)
    if ALL.find(text):
        assert OPENED.may_find(text.encode())


@for_each("text", [each for several in ATTACKS.values() for each in several])
def test_attacks_are_found_alike(text: str) -> None:
    assert OPENED.find(text) == ALL.find(text) != []
    assert OPENED.may_find(b"Hello\n" + text.encode() + b"\nthere")


def test_plain_english_has_none_of_them() -> None:
    assert OPENED.openings is not None
    assert not OPENED.openings.hits(PLAIN.encode())
    assert not OPENED.may_find(PLAIN.encode())
