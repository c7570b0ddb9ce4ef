"""The measure of the semantic cache: what the page says is what is measured."""

from __future__ import annotations

from tools.alike import PAGE, SETS, pairs, table


def test_the_page_says_what_is_measured() -> None:
    page = PAGE.read_text("utf-8")

    assert "\n".join(table()) in page


def test_no_other_question_is_answered() -> None:
    served = [pair for name in SETS for pair in pairs(name) if pair.served]

    assert [pair for pair in served if not pair.same] == []
    assert len(served) >= 42


def test_no_pair_is_in_both_sets() -> None:
    seen, unseen = ({(pair.one, pair.other) for pair in pairs(name)} for name in SETS)

    assert not seen & unseen
