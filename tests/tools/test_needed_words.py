"""What a pattern needs is in each text that it matches."""

from __future__ import annotations

import re2
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.matching.injection_languages import GAP
from tests.for_each import for_each
from tools.needed_words import needed


@for_each(
    ("pattern", "words"),
    [
        ("send money", {"send money"}),
        ("(?:bend|lend) (?:gold|silver)", {"bend", "lend"}),
        ("(?:send|lend) (?:gold|silver)", {"gold", "silver"}),  # many texts have "send"
        ("ab?cde", {"cde"}),
        ("(?:abc)+d", {"abc"}),
        ("(?:abc)*d", {"d"}),
        ("(?:abc){0,3}", set()),
        ("(?:abc){2}", {"abc"}),
        ("a|bcd?", {"a", "bc"}),
        ("[abc]de.f", {"de"}),
        (r"\bword\b", {"word"}),
        (r"a\.b\pLc", {"a.b"}),
        ("one#two", {f"one{GAP}two"}),
        ("(?:a|)b", {"b"}),
        ("(?:a|.)", set()),
    ],
)
def test_the_rarest_part_is_what_is_needed(pattern: str, words: set[str]) -> None:
    assert needed(pattern, "#") == words


PARTS = st.sampled_from(
    ["ab", "c", "(?:d|ef)", "g?", "(?:hi)*", "[jk]", "(?:lm|n)+", "o{2}", "(?:p|)"]
)


@given(st.lists(PARTS, min_size=1, max_size=6), st.text("abcdefghijklmnop", max_size=24))
def test_a_text_without_any_of_them_is_not_matched(parts: list[str], text: str) -> None:
    pattern = "".join(parts)
    words = needed(pattern, "#")

    if words and re2.search(pattern, text):
        assert any(word in text for word in words)
