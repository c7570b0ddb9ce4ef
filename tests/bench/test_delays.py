"""Output guards delay a stream only as long as their matches need."""

from __future__ import annotations

import pytest

from bench import results
from bench.delays import (
    RULES,
    SETS,
    TEXTS,
    TOKENS,
    TOKENS_PER_S,
    UNMASKING,
    measure_delay,
    split_tokens,
    table,
)
from tests.for_each import for_each

MAX_DELAY_S = 0.15


def test_texts_are_split_into_a_fixed_number_of_tokens() -> None:
    assert {len(split_tokens(text)) for text in TEXTS.values()} == {TOKENS}
    assert split_tokens("图书馆 is x")[:5] == ["图书", "馆", " is", " x", "图书"]


@for_each("text", ["prose", "Chinese"])
@for_each("name", RULES)
def test_rules_release_prose_quickly(name: str, text: str) -> None:
    first_s, mean_s, _ = measure_delay(name, TEXTS[text])

    assert max(first_s, mean_s) <= MAX_DELAY_S


def test_guards_of_whole_texts_release_at_the_end() -> None:
    first_s, mean_s, maximum_s = measure_delay("length", TEXTS["prose"])

    assert (first_s, maximum_s) == (TOKENS / TOKENS_PER_S, TOKENS / TOKENS_PER_S)
    assert mean_s == pytest.approx((TOKENS + 1) / 2 / TOKENS_PER_S)


def test_unmasking_delays_only_placeholders() -> None:
    assert measure_delay(UNMASKING, TEXTS["prose"]) == (0, 0, 0)
    assert 0 < measure_delay(UNMASKING, TEXTS["with findings"])[2] <= MAX_DELAY_S


def test_stored_table_has_each_set() -> None:
    lines = [*table(results.read(results.DELAYS))]

    assert [line.split("|")[1].strip() for line in lines[2:]] == [*SETS]
