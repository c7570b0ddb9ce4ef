"""Phone numbers: valid forms, context words, and other numbers."""

from __future__ import annotations

import pytest

from proxy.guards.matching.numbers import split_digit_run
from proxy.guards.matching.phones import Phones
from tests.for_each import for_each

REGIONS = ("US", "GB", "DE", "FR", "ES", "IT")
PHONES = Phones(REGIONS)


def find_scores(text: str, phones: Phones = PHONES) -> list[tuple[str, float]]:
    places = [index for index, finding in enumerate(text) if finding in "+(0123456789"]
    start, end = places[0], places[-1] + 1
    return [
        (text[finding.start : finding.end], finding.score)
        for part in split_digit_run(text, start, end)
        for finding in phones.find(part)
    ]


@for_each(
    ("text", "number", "score"),
    [
        ("+1 212-555-0123", "+1 212-555-0123", 1.0), ("+81 3-1234-5678", "+81 3-1234-5678", 1.0),
        ("0049 171 3920012", "0049 171 3920012", 1.0), ("+999 1234 5678", "+999 1234 5678", 0.6),
        ("(212) 555-0187", "(212) 555-0187", 0.9), ("0171 3920012", "0171 3920012", 0.9),
        ("0171 / 3920012", "0171 / 3920012", 0.9), ("01713920012", "01713920012", 0.6),
        ("2125550187", "2125550187", 0.3), ("call 2125550187", "2125550187", 0.9),
        ("2125550187 (mobile)", "2125550187", 0.9), ("call 555-0142", "555-0142", 0.6),
        ("我的电话是02079460123", "02079460123", 0.9), ("212-555-0187-office", "212-555-0187", 0.9),
        ("call about order 2125550187", "2125550187", 0.9),
    ],
)  # fmt: skip
def test_score_depends_on_form_and_context(text: str, number: str, score: float) -> None:
    assert find_scores(text) == [(number, score)]


@for_each("extension", ["x42", " x42", " ext. 42", "ext 1234", " extension 7"])
def test_extension_belongs_to_the_number(extension: str) -> None:
    assert find_scores(f"212-555-0101{extension}") == [(f"212-555-0101{extension}", 0.9)]


@for_each(
    "text",
    [
        "order 212-555-0187", "20261121093000", "666-12-3456", "SKU-212-555-0187", "212-555-0187-B",
        "$212-555-0187", "212-555-0187 €", "+40.712776", "1.2.3.4.5.6.7.8", "call 1-1-1-1-1-1-1-1",
        "+12",
        "192.0.2.17", "61.220.139.68", "call from 61.220.139.68", "04 61.220.139.68 555",
        "61.220.139.68.443", "081109 203615 148", "20081109 203615 1485551", "0912 093000 1485551",
        "08:02.952 1851 30123", "35 59283/61492", "03.652 15775 34834", "0 191469557",
    ],
)  # fmt: skip
def test_other_numbers_are_no_phones(text: str) -> None:
    assert find_scores(text) == []


@for_each(
    ("regions", "text", "expected"),
    [
        ("US", "030 23125 014", []), ("US", "+49 30 23125 014", [("+49 30 23125 014", 1.0)]),
        ("", "212-555-0187", []), ("DE", "30 23125014", []),
        ("DE", "030 23125014", [("030 23125014", 0.9)]),
    ],
)  # fmt: skip
def test_national_numbers_of_regions_are_found_with_their_trunk_zero(
    regions: str, text: str, expected: list[tuple[str, float]]
) -> None:
    assert find_scores(text, Phones(regions.split())) == expected


@for_each(
    "row", [["212-555-0123", "415-555-0132"], [f"212-555-01{digits}" for digits in range(10, 30)]]
)
def test_phones_in_a_row_are_separated(row: list[str]) -> None:
    assert find_scores(" ".join(row)) == [(number, 0.9) for number in row]


@for_each(
    ("text", "score"),
    [
        ("212 555 0187", 0.3), ("912 345 678", 0.3), ("3864 1495 2018 4512 9380", 0.3),
        ("call 612 34 56 78 12 times", 0.6), ("612 34 56 78 (mobile)", 0.9),
        ("612-34-56-78 12 times", 0.9), ("(212) 555 0187", 0.9), ("+1 212 555 0187", 1.0),
        ("020 7946 0123", 0.9), ("0176 12345678 12 times", 0.9),
    ],
)  # fmt: skip
def test_groups_separated_by_spaces_need_another_sign(text: str, score: float) -> None:
    """Tables contain such groups. The sign is a prefix, a bracket or a word."""
    assert max((sure for _, sure in find_scores(text)), default=0.0) == score


@for_each("region", ["XX", "us", "", "USA"])
def test_unknown_region_is_refused(region: str) -> None:
    with pytest.raises(ValueError, match="is not a supported region"):
        Phones(["US", region])
