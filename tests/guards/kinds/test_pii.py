"""Personal identifiers: samples, similar harmless texts, and linear time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.guards.kinds.pii import ENTITIES, LOOKBACK, Pii
from proxy.types.guard import Detector, Finding
from tests.for_each import for_each
from tests.guards.growth import LINEAR, growth
from tests.guards.identifiers import NEGATIVES, positives
from tests.guards.logs import FORMATS, excerpts
from tests.guards.national_numbers import EXAMPLES as NATIONAL
from tests.guards.national_numbers import SENTENCES as NATIONAL_SENTENCES
from tests.guards.national_numbers import texts as national_texts

DEFAULT = Pii()
ALL_ENTITIES: Detector = Pii(ENTITIES)
SINGLE = {entity: Pii([entity]) for entity in ENTITIES}


def find_spans(pii: Detector, text: str) -> list[tuple[str, str]]:
    return [(finding.kind, text[finding.start : finding.end]) for finding in pii.find(text)]


@for_each(("kind", "value", "text"), positives())
@for_each("text_before", ["", "Ada Weir\n", "Room 12\n", "\t", "\r\n", "- "])
def test_each_identifier_is_found(text_before: str, kind: str, value: str, text: str) -> None:
    assert (kind, value) in find_spans(SINGLE[kind], f"{text_before}{text}")
    if not text_before and not kind.startswith("id_"):
        assert (kind, value) in find_spans(ALL_ENTITIES, text)


@for_each(("kind", "value", "text"), positives())
def test_each_of_many_values_is_found(kind: str, value: str, text: str) -> None:
    times = 1_010

    values = find_spans(SINGLE[kind], f"{text}\nThe next entry of this list is:\n" * times)

    assert values.count((kind, value)) >= times


# Remainders of an account with wrong check digits.
KNOWN_VALUES = {"DE88 3704 0044 0532 0130 00"}


@for_each("text", NEGATIVES)
def test_similar_texts_are_no_identifiers(text: str) -> None:
    assert (find_spans(DEFAULT, text) == []) == (text not in KNOWN_VALUES)


def grouped(card: str) -> str:
    return " ".join(card[index : index + 4] for index in range(0, len(card), 4))


def of_digits(chance: random.Random, digits: int) -> str:
    return str(chance.randrange(10 ** (digits - 1), 10**digits))


NUMBERS: dict[str, Callable[[random.Random], str]] = {
    "whole numbers": lambda chance: str(
        [chance.randrange(10 ** chance.randint(1, 16)) for _ in range(12)]
    ),
    "whole numbers in a row": lambda chance: " ".join(
        of_digits(chance, chance.randint(1, 8)) for _ in range(14)
    ),
    "numbers as long as cards": lambda chance: ", ".join(of_digits(chance, 16) for _ in range(6)),
    "numbers of 8 digits": lambda chance: "; ".join(of_digits(chance, 8) for _ in range(9)),
    "fractions": lambda chance: str([chance.random() for _ in range(8)]),
    "a table": lambda chance: "\n".join(
        " ".join(f"{chance.uniform(-1000, 1000):8.3f}" for _ in range(6)) for _ in range(3)
    ),
    "binary numbers": lambda chance: " ".join(f"{chance.getrandbits(8):08b}" for _ in range(10)),
    "binary numbers by four": lambda chance: " ".join(
        f"{chance.getrandbits(4):04b}" for _ in range(10)
    ),
}


@for_each("numbers", NUMBERS)
def test_rows_of_numbers_are_not_found(numbers: str) -> None:
    chance, pii = random.Random(8), Pii()

    alarms = [findings for _ in range(1000) if (findings := pii.find(NUMBERS[numbers](chance)))]

    assert len(alarms) <= 1


@for_each("log_format", FORMATS)
def test_no_log_excerpt_is_masked(log_format: str) -> None:
    masked = {text: find_spans(DEFAULT, text) for text in excerpts(log_format)}

    assert {text: findings for text, findings in masked.items() if findings} == {}


@for_each("kind", NATIONAL)
@pytest.mark.parametrize("place", NATIONAL_SENTENCES)
def test_national_numbers_with_valid_check_digits_are_found(kind: str, place: str) -> None:
    """A short number without groups needs a name, such as the key ``national_id``."""
    missed = [
        text
        for example in NATIONAL[kind]
        for number, text in national_texts(kind, example, place)
        if (kind, number) not in find_spans(SINGLE[kind], text)
    ]

    assert missed == []


@for_each("middle", [" ", "  ", " - ", "/", ". ", ", ", "\n", " | "])
@for_each("style", [str, grouped])
def test_several_cards_in_a_row_are_all_found(middle: str, style: Callable[[str], str]) -> None:
    cards = [style(card) for card in ("4111111111111111", "5555555555554444", "4012888888881881")]

    for count in (1, 2, 3):
        text = f"Cards: {middle.join(cards[:count])}."
        assert [value for _, value in find_spans(DEFAULT, text)] == cards[:count]


@for_each("middle", [",", ", ", "; ", "\n", "\t", " | ", '", "'])
def test_long_list_of_cards_is_found(middle: str) -> None:
    cards = ["4111111111111111", "5555555555554444", "4012888888881881", "378282246310005"] * 10

    text = f"[{middle.join(cards)}]"

    assert [value for _, value in find_spans(DEFAULT, text)] == cards


@for_each(
    ("text", "address"),
    [
        ("bind ::1 only", "::1"), ("http://[::1]:8080/", "::1"), ("from fe80::1%eth0", "fe80::1"),
        ("route 2001:db8::/32", "2001:db8::"), ("a[1::2]", None), ("Dead::Beef", None),
        ("use a::b", None), ("at 12:30:15", None), ("00:11:22:33:44:55:66:77", None), ("::", None),
    ],
)  # fmt: skip
def test_short_addresses_are_distinguished_from_code(text: str, address: str | None) -> None:
    assert [value for _, value in find_spans(SINGLE["ip"], text)] == ([address] if address else [])


@for_each(
    ("text", "values"),
    [
        ("Clone git@github.example:team/app.git first.", []),
        ("Mail git@example.com: it answers.", ["git@example.com"]),
        ("Dial 30123456, or 0.4111111111111111 of it", ["30123456"]),
        ("It took 20571234 steps, 4111 111111 111111 in all.", []),
        ("Cards: 4111111111111111, 5555555555554444", ["4111111111111111", "5555555555554444"]),
        ("4111111111111111, 5555555555554444", ["4111111111111111", "5555555555554444"]),
        ("4111111111111111, 12/27, 123", ["4111111111111111"]),
        ("7,Ada,4111111111111111,1227,123", ["4111111111111111"]),
        ("10023457,4111111111111111,05/27", ["4111111111111111"]),
        ("| 10023457 | 4111111111111111 |", ["4111111111111111"]),
        ("VALUES (10023457, 4111111111111111, 123)", ["4111111111111111"]),
        ("[10023457, 4111111111111111, 7]", ["4111111111111111"]),
        ("20270101\t4111111111111111\t20290101", ["4111111111111111"]),
        ("It was paid (4111 1111 1111 1111) today.", ["(4111 1111 1111 1111"]),
        ("4111111111111111, 1234567890123456, 6543210987654321", []),
        ("12, 4111111111111111, 7, 99, 3", []),
    ],
)
def test_numbers_are_judged_by_form_and_context(text: str, values: list[str]) -> None:
    assert [text[finding.start : finding.end] for finding in Pii().find(text)] == values


def test_several_identifiers_are_found_in_order() -> None:
    text = "ada@mill.example, 4111 1111 1111 1111 or +1 212-555-0123; DE89370400440532013000"

    assert [kind for kind, _ in find_spans(DEFAULT, text)] == ["email", "card", "phone", "iban"]


def test_only_configured_entities_are_found() -> None:
    text = "ada@mill.example, 4111 1111 1111 1111 or +1 212-555-0123 at 192.0.2.17"

    assert find_spans(Pii(["card"]), text) == [("card", "4111 1111 1111 1111")]
    spans = [("email", "ada@mill.example"), ("ip", "192.0.2.17")]
    assert find_spans(Pii(["ip", "email"]), text) == spans
    assert find_spans(Pii([]), text) == []


def test_threshold_decides_findings() -> None:
    assert find_spans(Pii(["phone"], threshold=0.2), "2125550187") == [("phone", "2125550187")]
    assert find_spans(Pii(["phone"], threshold=0.95), "212-555-0187") == []


def test_positions_refer_to_the_original_text() -> None:
    card = "4111 1111 1111 1111".translate({ord(str(digit)): 0x660 + digit for digit in range(10)})
    phone = "+49\u00a030\u202f23125\u2011014"

    spans = find_spans(DEFAULT, f"🌊 {card} und {phone} \ud83d")
    assert spans == [("card", card), ("phone", phone)]


@for_each(
    ("text", "address"),
    [
        ("<ada@mill.example>", "ada@mill.example"),
        ("mailto:ada@mill.example?x", "ada@mill.example"),
        ("...ada@mill.example...", "ada@mill.example"),
        ("a" * 80 + "@mill.example", "a" * 64 + "@mill.example"),
        (r'print("Mail:\nada@mill.example\n")', "ada@mill.example"),
        (r"To\t.ada@mill.example", "ada@mill.example"),
        (r"C:\ada@mill.example", "ada@mill.example"),
        (r"\n@mill.example", "n@mill.example"),
    ],
)
def test_mail_address_has_exact_boundaries(text: str, address: str) -> None:
    assert find_spans(DEFAULT, text) == [("email", address)]


def test_no_finding_is_longer_than_the_lookback() -> None:
    text = "a" * 900 + "@" + "b." * 900 + "example"

    assert ALL_ENTITIES.lookback == LOOKBACK
    assert [finding.end - finding.start for finding in ALL_ENTITIES.find(text)] == [64 + 1 + 253]


@for_each("entity", ["e-mail", "id_XX", "id_us", ""])
def test_unknown_entity_is_refused(entity: str) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        Pii(["email", entity])


@settings(deadline=None)
@given(st.text("0159 +-./()@:aé٣\u00a0\ud83d", max_size=60))
def test_findings_are_ordered_and_separate(text: str) -> None:
    ends = [0]
    for finding in ALL_ENTITIES.find(text):
        assert isinstance(finding, Finding)
        assert ends[-1] <= finding.start < finding.end <= len(text)
        ends.append(finding.end)


TEXTS = [text for *_, text in positives()] + NEGATIVES + ["12 " * 60, "4111 1111 1111 1111 " * 20]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(TEXTS), min_size=20, max_size=40),
    st.sampled_from([" ", "\n", ""]),
    st.integers(0, 900),
)
def test_text_beyond_lookback_changes_no_finding(texts: list[str], between: str, cut: int) -> None:
    text = between.join(texts)
    findings = ALL_ENTITIES.find(text)

    shifted = [
        replace(finding, start=finding.start + cut, end=finding.end + cut)
        for finding in ALL_ENTITIES.find(text[cut:])
    ]
    assert [finding for finding in shifted if finding.start >= cut + LOOKBACK] == [
        finding for finding in findings if finding.start >= cut + LOOKBACK
    ]
    assert [
        finding
        for finding in ALL_ENTITIES.find(text[:-cut])
        if finding.end <= len(text) - cut - LOOKBACK
    ] == [finding for finding in findings if finding.end <= len(text) - cut - LOOKBACK and cut]


HOSTILE = ["a", "1-", "a.", "@", "a@", "1", "1 ", "+1 ", "DE11 ", "DE89370400440532013001 ",
           "1-1-1-1-1-1-1 x ", "4155550132 ", "212-555-0123 ", "4111 1111 1111 1112 ", "12 345 ",
           "call 1234567 ", "a@a.", ":", "1:", "12.", "(", "+1(2)", "2026-11-21 "]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_is_linear_in_text_length(piece: str) -> None:
    def text(characters: int) -> str:
        return (piece * characters)[:characters] + "!"

    assert growth(ALL_ENTITIES.find, text, 10 << 10, maximum=LINEAR) < LINEAR


@for_each("end", [r"\n", r"\r\n", r"\t"])
@for_each(
    ("kind", "value"),
    [
        ("card", "4111 1111 1111 1111"), ("card", "5555555555554444"),
        ("iban", "DE89 3704 0044 0532 0130 00"), ("ssn", "536-90-4399"),
        ("phone", "(415) 555-2671"), ("phone", "030 901820"), ("ip", "10.0.0.1"),
    ],
)  # fmt: skip
def test_escaped_line_end_separates_identifiers(kind: str, value: str, end: str) -> None:
    """Tool results often contain JSON as text."""
    pii = Pii(["card", "iban", "ssn", "phone", "ip"])

    text = f'{{"note": "See:{end}{value}{end}Thanks"}}'

    assert find_spans(pii, text) == [(kind, value)]
    assert pii.find(f"abn{value}") == [] or kind in ("iban", "phone")
