"""Where two messages meet a value is found that was cut, and none that two numbers make."""

from __future__ import annotations

import re

from proxy.guards.matching.numbers import is_cut
from tests.for_each import for_each


def tell(kind: str, marked: str) -> bool:
    """Return the verdict on what stands in < and >, cut at each |."""
    signs = [match.start() for match in re.finditer(r"[<|>]", marked)]
    start, *cuts, end = [place - number for number, place in enumerate(signs)]
    text = re.sub(r"[<|>]", "", marked)
    return is_cut(kind, text, start, end, [(cut, cut) for cut in cuts])


@for_each(
    ("kind", "marked"),
    [
        ("phone", "mine is <+49 30 9018|20>, thanks"), ("phone", "mine is <+|49 30 901820>"),
        ("phone", "<0049 30 9018|20>"), ("phone", "<(+49) 30 9018|20>"),
        ("phone", "my phone is <030 901|820>"), ("phone", "<030 901|820> is my cell"),
        ("phone", "<+49|30 90|1820>"), ("card", "<4111 1111| 1111 1111>"),
        ("card", "<4111 1111 11|11 1111>"), ("iban", "<DE89 3704 0044 05|32 0130 00>"),
        ("ssn", "<536-2|2-1234>"), ("ssn", "<536|-22-1234>"), ("email", "<ada@|mill.example>"),
        ("email", "<ada.l|@mill.example>"), ("email", "<ada7|@mill.example>"),
        ("email", "<ada@mi|ll.example>"), ("email", "<ada@mill.|example>"),
        ("email", "<a1@4you.|example>"),
    ],
)  # fmt: skip
def test_what_one_message_begins_and_another_ends_is_one_value(kind: str, marked: str) -> None:
    assert tell(kind, marked)


@for_each(
    ("kind", "marked"),
    [
        ("phone", "<202| 5550187> items"), ("phone", "room <555|0187999>"),
        ("phone", "<0049| 2026-11>-23"), ("phone", "<0049| 1732345678>"),
        ("phone", "call at 10:<30|30 901820>"), ("phone", "<+49 30| 19.99>"),
        ("phone", "on 23.11.<2026|5550187>"), ("phone", "-6.<376|19198>"),
        ("card", "<4111 1111 1111| 1111>.25"), ("card", "on 2026-<11-23|11 1111 1111 1111>"),
        ("id_CL", "-3.<466462|-5>.41"), ("email", "<19.99|@mill.example>"),
        ("email", "<42|@mill.example>"), ("email", "Ask the <team|@ada.dev> for help"),
        ("email", "I took <vue@3.2.|Then> it broke"), ("email", "<vue@v3.|Then>"),
    ],
)  # fmt: skip
def test_numbers_that_stand_beside_each_other_are_none(kind: str, marked: str) -> None:
    assert not tell(kind, marked)
