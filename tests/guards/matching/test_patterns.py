"""Custom patterns: positions, word edges in any alphabet, bounds, and overlaps."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.matching.patterns import Patterns, trim_overlaps
from proxy.types.guard import Detector, Finding
from tests.for_each import for_each
from tests.guards.growth import growth


def spans(patterns: Patterns, text: str) -> list[str]:
    return [text[finding.start : finding.end] for finding in patterns.find(text)]


def one_pattern(regex: str, *, whole_words: bool = False) -> Patterns:
    return Patterns("mill", [regex], whole_words=whole_words)


WHOLE_WORD: Detector = one_pattern("a", whole_words=True)
MIXED = one_pattern("a[é🌊]|🌊é+ ?")


@given(st.text("aé🌊 ", max_size=30))
def test_positions_equal_those_of_re(text: str) -> None:
    findings = [(finding.start, finding.end) for finding in MIXED.find(text)]

    assert findings == [match.span() for match in re.finditer("a[é🌊]|🌊é+ ?", text)]


@for_each(
    ("regex", "text", "found"),
    [
        ("(?i)мельница|mühle", "МЕЛЬНИЦА, MÜHLE", ["МЕЛЬНИЦА", "MÜHLE"]),
        ("^mill", "millmill", ["mill"]),
        (r"\bmill", "millmill mill", ["mill", "mill"]),
    ],
)
def test_pattern_is_found_with_its_flags_and_anchors(
    regex: str, text: str, found: list[str]
) -> None:
    assert spans(one_pattern(regex), text) == found


@for_each(
    ("regex", "text", "match_count"),
    [
        ("art", "art, cart, artful, art", 2), ("art", "état d'art à l'art", 2),
        ("art", "éart artü _art art1", 0), ("éa", "xéa éa", 1), ("aa aa", "xaa aa aa", 1),
        ("c\\+\\+", "c++ c++11 xc++", 2), ("दान", "दान दाना", 1), ("水車", "この水車小屋", 1),
        ("น้ำ", "ดื่มน้ำเย็น", 1), ("mill.*", "amill mill", 0),
    ],
)  # fmt: skip
def test_whole_words_are_matched_in_any_alphabet(regex: str, text: str, match_count: int) -> None:
    assert len(one_pattern(regex, whole_words=True).find(text)) == match_count


def test_find_resolves_overlaps_that_find_overlapping_returns() -> None:
    patterns = Patterns("a", ["water mill", "(?i)mill RACE"])

    assert patterns.find_overlapping("water mill race") == [
        Finding(0, 10, "a"),
        Finding(6, 15, "a"),
    ]
    assert patterns.find("water mill race") == [Finding(0, 10, "a"), Finding(10, 15, "a")]


@given(st.text("aआा水_ -", max_size=20))
def test_whole_word_has_no_adjacent_word_characters(text: str) -> None:
    def joined(index: int) -> bool:
        letters = "aआा_"  # not 水: its script has no spaces between words
        return 0 < index < len(text) and text[index - 1] in letters and text[index] in letters

    expected = {
        index
        for index in range(len(text))
        if text[index] == "a" and not joined(index) and not joined(index + 1)
    }
    assert {finding.start for finding in WHOLE_WORD.find(text)} == expected


@for_each(
    ("regexes", "lookback"),
    [([], 1), (["mill"], 5), (["mill", "a{3,9}"], 10), (["mill", "a+"], None), (["^a$"], 2)],
)
def test_lookback_is_longest_match_and_one_edge(regexes: list[str], lookback: int | None) -> None:
    assert Patterns("mill", regexes).lookback == lookback


@for_each(
    ("regex", "problem"),
    [
        *((regex, "is not a valid RE2 pattern: ") for regex in (r"(a)\1", "a(?=b)", "(?<!a)b")),
        *((regex, "is not a valid RE2 pattern: ") for regex in (r"a\Z", "a{2000}", "(", r"a\Cb")),
        ("[ж-ю]{900}" * 400, "is not a valid RE2 pattern: .*too large"),
        *((regex, "matches the empty string") for regex in ("", "a*", "^", r"\b", "(|a)", "a?")),
    ],
)
def test_unusable_pattern_is_refused(regex: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"mill: .* {problem}"):
        one_pattern(regex)


def test_refused_patterns_write_no_output(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="is not a valid RE2 pattern"):
        one_pattern("(")
    with pytest.raises(ValueError, match="too large together"):
        regex = "(?:[a-z]{60}x){15}"
        Patterns("mill", [regex], memory_bytes=20_000)

    assert capfd.readouterr() == ("", "")


def test_matches_beyond_the_maximum_become_one() -> None:
    text = "a " * 3000
    findings = one_pattern(r"a+").find(text)

    assert len(findings) == 1001
    assert findings[-1] == Finding(2000, len(text), "mill")


@for_each("piece", ["a", "1-", "a.a@", "é", "mill"])
def test_time_is_linear_in_text_length(piece: str) -> None:
    patterns = Patterns("a", ["(?:[a-z]+[.])+mill", "(?:1-){3,9}x|mil+l"])

    def text(characters: int) -> str:
        return piece * (characters // len(piece)) + "!"

    assert growth(patterns.find, text, 50 << 10, maximum=40) < 40  # quadratic time would be 64


def test_repr_hides_patterns() -> None:
    assert "mill" not in repr(one_pattern("mill"))


@for_each(
    ("findings", "trimmed"),
    [
        (
            [Finding(0, 12, "phone", 0.6), Finding(4, 8, "card", 1.0)],
            [Finding(0, 4, "phone", 0.6), Finding(4, 8, "card"), Finding(8, 12, "phone", 0.6)],
        ),
        (
            [Finding(2, 9, "b"), Finding(0, 5, "a"), Finding(0, 3, "c")],
            [Finding(0, 5, "a"), Finding(5, 9, "b")],
        ),
    ],
)
def test_higher_score_then_earlier_then_longer_finding_wins(
    findings: list[Finding], trimmed: list[Finding]
) -> None:
    assert trim_overlaps(findings) == trimmed


FINDINGS = st.lists(
    st.builds(
        lambda start, length, kind, score: Finding(start, start + length, kind, score),
        st.integers(0, 30),
        st.integers(1, 12),
        st.sampled_from("abc"),
        st.sampled_from([0.4, 0.6, 1.0]),
    ),
    max_size=12,
)


def covered(findings: list[Finding]) -> set[int]:
    return {place for finding in findings for place in range(finding.start, finding.end)}


@given(FINDINGS)
def test_resolved_findings_cover_the_same_text_once(findings: list[Finding]) -> None:
    merged = trim_overlaps(findings)

    assert covered(merged) == covered(findings)
    assert sum(finding.end - finding.start for finding in merged) == len(covered(findings))
    assert merged == sorted(merged, key=lambda finding: finding.start)


@given(FINDINGS)
def test_each_character_keeps_its_highest_score(findings: list[Finding]) -> None:
    for finding in trim_overlaps(findings):
        for place in range(finding.start, finding.end):
            assert finding.score == max(f.score for f in findings if f.start <= place < f.end)
