"""The measure of the semantic cache: what the page says is what is measured."""

from __future__ import annotations

from proxy.embedding.model import EmbeddingModel
from proxy.types import Semantic
from tools.alike import PAGE, SETS, judged, pairs, product, table


def test_the_page_says_what_is_measured(model: EmbeddingModel) -> None:
    page = PAGE.read_text("utf-8")

    assert "\n".join(table(model)) in page


def test_at_default_settings_no_other_question_is_answered(model: EmbeddingModel) -> None:
    default = Semantic().threshold
    served = [
        each
        for name in SETS
        for each in (judged(pair, model) for pair in pairs(name))
        if each.served(default)
    ]

    assert [each.pair for each in served if not each.pair.same] == []
    assert len(served) >= 40


def test_no_pair_is_in_both_sets() -> None:
    seen, unseen = ({(pair.one, pair.other) for pair in pairs(name)} for name in SETS)

    assert not seen & unseen


def test_what_has_no_vector_is_near_nothing() -> None:
    assert product(None, b"") == 0.0
