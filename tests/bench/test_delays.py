"""How late guards show a stream is measured, and no guard that is a rule shows prose late."""

from __future__ import annotations

import pytest

from bench import results
from bench.delays import A_SECOND, BACK, KEPT, RULES, SETS, TEXTS, TOKENS, delay, table, tokens
from tests.for_each import for_each

LATE_S = 0.15


def test_an_answer_is_cut_into_so_many_tokens() -> None:
    assert {len(tokens(text)) for text in TEXTS.values()} == {TOKENS}
    assert tokens("图书馆 is x")[:5] == ["图书", "馆", " is", " x", "图书"]


@for_each("text", ["prose", "Chinese"])
@for_each("name", RULES)
def test_a_guard_that_is_a_rule_shows_prose_at_once(name: str, text: str) -> None:
    first_seconds, mean, _ = delay(name, TEXTS[text])

    assert max(first_seconds, mean) <= LATE_S


def test_a_guard_of_whole_texts_shows_them_at_their_end() -> None:
    first_seconds, mean, maximum = delay("length", TEXTS["prose"])

    assert (first_seconds, maximum) == (TOKENS / A_SECOND, TOKENS / A_SECOND)
    assert mean == pytest.approx((TOKENS + 1) / 2 / A_SECOND)


def test_what_is_put_back_waits_for_its_placeholder_alone() -> None:
    assert delay(BACK, TEXTS["prose"]) == (0, 0, 0)
    assert 0 < delay(BACK, TEXTS["with findings"])[2] <= LATE_S


def test_the_page_has_each_set_now_and_before() -> None:
    stored = results.read(KEPT)

    for revision in ("now", "before"):
        lines = [*table(stored, revision)]
        assert [line.split("|")[1].strip() for line in lines[2:]] == [*SETS]
    for name in RULES:
        first_value, mean, _ = stored["now"][name]["prose"]
        assert max(first_value, mean) <= LATE_S
