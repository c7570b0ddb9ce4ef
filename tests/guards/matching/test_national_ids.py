"""National numbers: each form's own example, its wrong check digit, and its look in a text."""

from __future__ import annotations

import pytest
import re2

from proxy.guards.kinds.pii import TRANSLATION
from proxy.guards.matching.national_ids import FORMS, national_ids
from proxy.guards.matching.numbers import DigitRun
from tests.for_each import for_each
from tests.guards.identifiers import CALLED, VALUES

EXAMPLES = [
    *((kind, value) for kind, values in VALUES.items() for value in values),
    *((kind, value) for kind, _, value in CALLED),
]


def find_scores(kind: str, text: str) -> list[tuple[str, float]]:
    translated = text.translate(TRANSLATION)
    return [
        (text[finding.start : finding.end], finding.score)
        for form in national_ids(kind)
        for match in re2.finditer(form.regex, translated)
        for finding in form.find(DigitRun(translated, *match.span()))
    ]


@for_each(
    ("kind", "value"), [each for each in EXAMPLES if each[0] == "ssn" or each[0].startswith("id_")]
)
def test_an_example_of_each_country_is_found(kind: str, value: str) -> None:
    assert [number for number, _ in find_scores(kind, f"It is {value}.")] == [value]


def test_every_country_has_an_example() -> None:
    assert {f"id_{code}" for code in FORMS} <= {kind for kind, _ in EXAMPLES}


@for_each(
    ("kind", "text"),
    [
        ("ssn", "666-12-3456"),
        ("ssn", "078-05-1120"),
        ("ssn", "A-536-90-4399"),
        ("ssn", "x536904399"),
        ("id_BR", "390.533.447-06"),
        ("id_NL", "111252333"),
        ("id_AU", "1 000 000 000"),
        ("id_IN", "AAAAA0000A"),
        ("id_CN", "445988992808104770"),
        ("id_IE", "2176792kB"),
        ("id_GB", "BG123456C"),
        ("id_GB", "DA123456C"),
        ("id_GB", "AO123456C"),
        ("id_GB", "ZZ123456C"),
        ("id_GB", "AB123456E"),
    ],
)
def test_what_does_not_check_is_none(kind: str, text: str) -> None:
    assert find_scores(kind, text) == []


@for_each(
    ("kind", "text", "score"),
    [
        ("ssn", "536904399", 0.3),
        ("ssn", "536-90-4399", 0.8),
        ("ssn", "SSN 536904399", 1.0),
        ("id_BR", "39053344705", 0.7),
        ("id_NL", "111222333", 0.3),
        ("id_NL", "BSN 111222333", 1.0),
        ("id_NL", '"nationalId": "111222333"', 1.0),
        ("id_NL", "user_national_id=111222333", 1.0),
        ("id_NL", '"taxpayer_id": 111222333', 1.0),
        ("id_NL", "international id 111222333", 0.3),
        ("id_NL", '"id": "111222333"', 0.3),
        ("id_PL", "44051401359", 0.7),
        ("id_PL", "PESEL 44051401359", 1.0),
        ("id_TH", "1100600445639", 0.3),
        ("id_TH", "3100600445635", 0.7),
        ("id_GB", "AB123456C", 0.7),
        ("id_CN", "身份证号360426199101010071。", 1.0),
    ],
)
def test_bare_digits_count_by_how_much_they_prove(kind: str, text: str, score: float) -> None:
    assert [sure for _, sure in find_scores(kind, text)] == [score]


def test_an_unknown_country_has_none() -> None:
    with pytest.raises(KeyError):
        national_ids("id_XX")
