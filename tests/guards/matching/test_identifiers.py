"""Cards and accounts: test numbers of every brand, and similar numbers."""

from __future__ import annotations

import pytest
import re2

from proxy.guards.kinds.pii import ASCII_DIGITS
from proxy.guards.matching import identifiers
from proxy.guards.matching.numbers import DigitRun
from tests.for_each import for_each
from tests.guards.identifiers import NAMED_VALUES, VALUES


def find_scores(text: str) -> list[tuple[str, float]]:
    return [
        (text[finding.start : finding.end], finding.score)
        for finding in identifiers.find_cards(DigitRun(text, 0, len(text)))
    ]


@for_each(
    "number",
    [
        "4111 1111 1111 1112",  # Luhn
        "41111111111111111",  # length
        "1234 5678 9012 3452",  # brand
        "2720 9999 9999 9999",
        "2721 0000 0000 0004",  # beyond MasterCard's second series
        "0000 0000 0000 0000",
    ],
)
def test_other_numbers_are_no_cards(number: str) -> None:
    assert find_scores(number) == []


def test_card_in_a_long_run_is_found_by_grouping() -> None:
    row = "10 20 30 40 50 60 " * 8
    text = f"{row}4111 1111 1111 1111 3782 822463 10005 {row}1"

    assert [value for value, _ in find_scores(text)] == ["4111 1111 1111 1111", "3782 822463 10005"]


@for_each(
    ("text", "is_card"),
    [
        ("4100 8821 4402 7275 226 405 5609 12", False),
        ("182 5763 6665 8574 8019 5496 3154 557", False),
        ("566 5763 4111 1111 1111 1111", False),
        ("4111 1111 1111 1111 1227 123", True),  # followed by expiry date and security code
        ("2041 4111 1111 1111 1111", True),  # part of a row of numbers
        ("12 27 4111 1111 1111 1111", True),
        ("4111 1111 1111 1111 5555 5555 5555 4444 4012 8888 8888 1881", True),
    ],
)
def test_groups_among_equal_groups_are_no_card(text: str, is_card: bool) -> None:
    assert bool(find_scores(text)) == is_card


def test_ambiguous_number_requires_a_context_word() -> None:
    assert find_scores("500000000009") == []
    assert find_scores("676770000005") == [("676770000005", 0.3)]
    text = "Maestro 676770000005"
    assert [match.score for match in identifiers.find_cards(DigitRun(text, 8, len(text)))] == [1.0]


@for_each(
    ("text_before", "is_card"),
    [("blk_", False), ("blk_-", False), ("7.", False), ("card_", True), ("_", True), ("No.", True)],
)
def test_card_does_not_start_within_an_identifier(text_before: str, is_card: bool) -> None:
    text = f"{text_before}4111111111111111"

    assert bool([*identifiers.find_cards(DigitRun(text, len(text_before), len(text)))]) is is_card


def accounts(text: str) -> list[str]:
    return [
        text[match.start : match.end]
        for start in range(len(text) - 4)
        for match in identifiers.find_iban(text, start, start + 4)
    ]


@for_each("number", VALUES["iban"])
def test_account_length_follows_its_country(number: str) -> None:
    assert accounts(f"IBAN {number} COBADEFF XYZ") == [number]
    assert accounts(number) == [number]


@for_each(
    "text",
    [
        "DE88 3704 0044 0532 0130 00", "DE89 3704 0044 0532 0130 0", "DE89370400440532013000A",
        "XDE89370400440532013000", "ZZ89370400440532013000", "DE89  3704 0044 0532 0130 00",
    ],
)  # fmt: skip
def test_wrong_check_digits_are_no_account(text: str) -> None:
    assert accounts(text) == []


EXAMPLES = [
    *((kind, value) for kind, values in VALUES.items() for value in values),
    *((kind, value) for kind, _, value in NAMED_VALUES),
]


def find_id_scores(kind: str, text: str) -> list[tuple[str, float]]:
    translated = text.translate(ASCII_DIGITS)
    return [
        (text[finding.start : finding.end], finding.score)
        for form in identifiers.build_national_id_detectors(kind)
        for match in re2.finditer(form.regex, translated)
        for finding in form.find(translated, *match.span())
    ]


def test_every_country_has_an_id_example() -> None:
    assert {f"id_{code}" for code in identifiers.NATIONAL_ID_FORMATS} <= {
        kind for kind, _ in EXAMPLES
    }


@for_each(
    ("kind", "text"),
    [
        ("ssn", "666-12-3456"), ("ssn", "078-05-1120"), ("ssn", "A-536-90-4399"),
        ("ssn", "x536904399"), ("id_BR", "390.533.447-06"), ("id_NL", "111252333"),
        ("id_AU", "1 000 000 000"), ("id_IN", "AAAAA0000A"), ("id_CN", "445988992808104770"),
        ("id_IE", "2176792kB"), ("id_GB", "BG123456C"), ("id_GB", "DA123456C"),
        ("id_GB", "AO123456C"), ("id_GB", "ZZ123456C"), ("id_GB", "AB123456E"),
    ],
)  # fmt: skip
def test_invalid_ids_are_not_found(kind: str, text: str) -> None:
    assert find_id_scores(kind, text) == []


@for_each(
    ("kind", "text", "score"),
    [
        ("ssn", "536904399", 0.3), ("ssn", "536-90-4399", 0.8), ("ssn", "SSN 536904399", 1.0),
        ("id_BR", "39053344705", 0.7), ("id_NL", "111222333", 0.3), ("id_NL", "BSN 111222333", 1.0),
        ("id_NL", '"nationalId": "111222333"', 1.0), ("id_NL", "user_national_id=111222333", 1.0),
        ("id_NL", '"taxpayer_id": 111222333', 1.0), ("id_NL", "international id 111222333", 0.3),
        ("id_NL", '"id": "111222333"', 0.3), ("id_PL", "44051401359", 0.7),
        ("id_PL", "PESEL 44051401359", 1.0), ("id_TH", "1100600445639", 0.3),
        ("id_TH", "3100600445635", 0.7), ("id_GB", "AB123456C", 0.7),
        ("id_CN", "身份证号360426199101010071。", 1.0),
    ],
)  # fmt: skip
def test_score_of_bare_digits_follows_check_digits(kind: str, text: str, score: float) -> None:
    assert [sure for _, sure in find_id_scores(kind, text)] == [score]


def test_unknown_country_has_no_ids() -> None:
    with pytest.raises(KeyError):
        identifiers.build_national_id_detectors("id_XX")
