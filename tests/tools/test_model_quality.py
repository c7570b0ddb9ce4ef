"""Counts of sentences that models judge."""

from __future__ import annotations

from tools import model_quality


async def test_each_sentence_is_scored_once() -> None:
    async def score(context: str, sentence: str) -> float | None:
        return None if "not" in sentence.split() else 0.95

    kinds = await model_quality.measure(score)
    lines = [*model_quality.score_table(kinds, (0.9, 0.99))]

    assert [*kinds] == [*model_quality.KINDS]
    assert {len(kind.scores) + kind.no_verdict for kind in kinds.values()} == {36}
    assert kinds["a negation"].no_verdict > 10
    assert lines[0] == "| sentences with | found at 0.9 | found at 0.99 | no verdict |"
    assert lines[2].startswith("| a changed number | 36/36 (")
    assert "| 0/36 (" in lines[2]
