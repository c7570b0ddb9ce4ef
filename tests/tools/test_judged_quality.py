"""How what models say of the triples is counted."""

from __future__ import annotations

from tools import judged_quality


async def test_each_sentence_is_asked_about_and_no_verdict_is_none() -> None:
    async def ask(context: str, sentence: str) -> float | None:
        return None if "not" in sentence.split() else 0.95

    counts = await judged_quality.counted(ask)
    lines = [*judged_quality.table(counts, (0.9, 0.99))]

    assert [*counts] == [*judged_quality.KINDS]
    assert {len(count.scores) + count.silent for count in counts.values()} == {36}
    assert counts["a negation"].silent > 10
    assert lines[0] == "| sentences with | found at 0.9 | found at 0.99 | none |"
    assert lines[2].startswith("| a changed number | 36/36 (")
    assert "| 0/36 (" in lines[2]
