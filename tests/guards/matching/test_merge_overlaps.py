"""Findings put apart: the better one stays whole, and no character is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.matching.merge_overlaps import resolve_overlaps
from proxy.types.guard import Finding


def test_the_higher_score_cuts_the_lower_one() -> None:
    phone, card = Finding(0, 12, "phone", 0.6), Finding(4, 8, "card", 1.0)

    assert resolve_overlaps([phone, card]) == [
        Finding(0, 4, "phone", 0.6),
        card,
        Finding(8, 12, "phone", 0.6),
    ]


def test_among_equals_the_earlier_and_then_the_longer_one_stays() -> None:
    assert resolve_overlaps([Finding(2, 9, "b"), Finding(0, 5, "a"), Finding(0, 3, "c")]) == [
        Finding(0, 5, "a"),
        Finding(5, 9, "b"),
    ]


def test_the_same_place_twice_is_one_finding() -> None:
    assert resolve_overlaps([Finding(3, 7, "card"), Finding(3, 7, "card")]) == [
        Finding(3, 7, "card")
    ]


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
def test_what_is_covered_stays_covered_once(findings: list[Finding]) -> None:
    merged = resolve_overlaps(findings)

    assert covered(merged) == covered(findings)
    assert sum(finding.end - finding.start for finding in merged) == len(covered(findings))
    assert merged == sorted(merged, key=lambda finding: finding.start)


@given(FINDINGS)
def test_each_character_has_the_highest_score_there(findings: list[Finding]) -> None:
    for finding in resolve_overlaps(findings):
        for place in range(finding.start, finding.end):
            assert finding.score == max(
                candidate.score
                for candidate in findings
                if candidate.start <= place < candidate.end
            )
