"""Sets of RE2 patterns and of phrases, matched together."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import re2

from proxy.guards.matching.phrase_rules import (
    RULES_PER_SET,
    PhraseRule,
    PhraseRules,
    build_phrase_pattern,
    make_classes_case_sensitive,
)
from proxy.guards.matching.re2set import (
    CharacterOffsets,
    Pattern,
    PatternSet,
    encode_utf8,
    replace_surrogates,
)
from proxy.types.guard import Finding
from tests.for_each import for_each

BOOK = PhraseRules(
    [PhraseRule("fruit", 0.5, r"app?le"), PhraseRule("word", 0.7, r"[a-z]+ pie")], max_chars=10
)


@for_each(
    ("text", "expected"),
    [
        ("an Apple, an ape", [Finding(3, 8, "fruit", 0.5)]),
        ("plum pie", [Finding(0, 8, "word", 0.7)]),
        ("rhubarbs pie", []),  # too long
        ("\ud83d apple", [Finding(2, 7, "fruit", 0.5)]),
        *((text, []) for text in ("pears", "")),
    ],
)
def test_each_rule_locates_its_match(text: str, expected: list[Finding]) -> None:
    assert BOOK.find(text) == expected


def test_rules_beyond_one_pass_are_found() -> None:
    book = PhraseRules(
        [PhraseRule(f"r{n}", 1, f"w{n}x") for n in range(2 * RULES_PER_SET + 1)], max_chars=10
    )

    assert [finding.kind for finding in book.find("w0x w20x w40x")] == ["r0", "r20", "r40"]
    assert PhraseRules([], max_chars=10).find("w0x") == []


@for_each(
    ("phrase", "text", "is_match"),
    [
        ("größe haben", "größe -- haben", True), ("größe haben", "größehaben", False),
        ("send <2>money", "send all the money", True),
        ("send <2>money", "send all of the money", False),
        ("a <10>b", "a" + " c" * 10 + " b", True), ("my <law>", "my policy", True),
    ],
)  # fmt: skip
def test_phrase_matches_separators_words_between_and_lists(
    phrase: str, text: str, is_match: bool
) -> None:
    pattern = build_phrase_pattern(phrase, {"law": "(?:rule|policy)"})

    assert (re2.search(pattern, text) is not None) is is_match


@for_each("written", [r"\pL", r"\PL", r"[\pL\pN]", " "])
def test_expanded_letter_case_matches_like_ignored_case(written: str) -> None:
    pattern = f"(?i){build_phrase_pattern(written)}"
    regexp, fast = re2.compile(pattern), re2.compile(make_classes_case_sensitive(pattern))

    every = "".join(chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000)

    assert "(?-i:" in make_classes_case_sensitive(pattern)
    assert regexp.findall(every) == fast.findall(every) != []


@for_each(
    ("patterns", "text", "expected"),
    [
        (["refund", r"order \d+", "parcel"], b"where is my parcel of order 17", [1, 2]),
        (["refund", r"order \d+", "parcel"], b"good morning", []),
        ([], b"good morning", []),
    ],
)
def test_set_returns_matching_patterns(
    patterns: list[str], text: bytes, expected: list[int]
) -> None:
    assert list(PatternSet(patterns).find_candidates(text)) == expected


def test_set_out_of_memory_falls_back() -> None:
    # RE2 out of memory returns the same as for a clean text.
    assert re2.Set.SearchSet().Match("mill") is None
    pattern_set = PatternSet(["mill", "wheel"])
    pattern_set._match = re2.Set.SearchSet().Match

    assert list(pattern_set.find_candidates(b"a mill")) == [0, 1]


@for_each("pattern", ["(", "(?=a)", r"(a)\1", "a{2000}"])
def test_invalid_pattern_is_refused_on_compilation(pattern: str) -> None:
    with pytest.raises(ValueError, match="not a valid RE2 pattern"):
        Pattern(pattern)


def test_matches_have_spans_of_groups() -> None:
    pattern = Pattern("(a)|(b)c")

    assert pattern.search(b"xxbc") == [(2, 4), (-1, -1), (2, 3)]
    assert pattern.search(b"xxbc", 3) is None
    assert pattern.search(b"xxbc", 0, 3) is None
    assert pattern.match(b"abc") == (0, 1)
    assert [spans[0] for spans in pattern.find_all(b"abcbc")] == [(0, 1), (1, 3), (3, 5)]


def test_byte_offsets_become_character_offsets() -> None:
    text = "Grüße, 🙂 order"
    characters = CharacterOffsets(text, data := encode_utf8(text))

    words = ("ü", "ß", "🙂", "order")
    starts = [(data.index(word.encode()), len(word.encode())) for word in words]
    spans = [characters.to_character_span(start, start + size) for start, size in starts]

    assert [text[start:end] for start, end in spans] == [*words]
    assert characters.seek_byte_offset(len(text)) == len(data)


def test_surrogate_is_one_character() -> None:
    assert encode_utf8("a\ud800b").decode() == replace_surrogates("a\ud800b") == "a\ufffdb"


def test_compilation_in_a_thread_yields_as_long_as_it_worked() -> None:
    def measure_compilation() -> tuple[float, float]:
        clock, work = time.perf_counter(), time.thread_time()
        Pattern(r"(?:[a-z]{3,90}:){3}")
        return time.perf_counter() - clock, time.thread_time() - work

    with ThreadPoolExecutor(1) as pool:
        clock_s, work_s = pool.submit(measure_compilation).result()

    assert clock_s > 1.8 * work_s
