"""What is measured beside the guards: what is installed, on the same texts, counted alike."""

from __future__ import annotations

from collections.abc import Sequence

from tools import alternatives, made_quality
from tools.alternatives import Alternative
from tools.injection_data import Example, Source


def hippos(texts: Sequence[str]) -> list[bool]:
    return ["hippo" in text for text in texts]


def test_what_is_not_installed_has_no_column() -> None:
    here = Alternative("aiohttp", lambda: hippos, "as a test")
    away = Alternative("no-such-distribution", lambda: hippos)
    half = Alternative("aiohttp", lambda: hippos, needs=("no-such-distribution",))

    asked = alternatives.columns({"ours": hippos}, [here, away, half])

    assert [*asked] == ["ours", here.title]
    assert here.title.startswith("aiohttp 3.")
    assert (away.missing, half.missing) == (["no-such-distribution"], ["no-such-distribution"])


def test_texts_with_a_finding_are_counted_in_each_column() -> None:
    rows = {"zoo": ["a hippo", "a lion"], "none": ["a lion"]}

    lines = [*alternatives.table("of", {"ours": hippos, "all": lambda t: [True] * len(t)}, rows)]

    assert lines[0] == "| of | ours | all |"
    assert lines[2].startswith("| zoo | 1 of 2 (")
    assert lines[3].startswith("| none | 0 of 1 (")
    assert "| 2 of 2 (" in lines[2]


def test_of_a_source_that_nothing_was_learned_from_the_first_texts_are_taken() -> None:
    texts = [Example(f"text {number}", attack=number % 2 == 1) for number in range(900)]
    measured = Source("measured", "measure", "MIT", lambda folder: texts)
    learned = Source("learned", "learn", "MIT", lambda folder: texts)
    read = {"measured": (measured, texts), "learned": (learned, texts)}

    rows = alternatives.by_source(read, attack=True)

    assert [*rows] == ["measured"]
    assert len(rows["measured"]) == alternatives.MOST
    assert rows["measured"][:2] == ["text 1", "text 3"]


def test_credentials_are_counted_by_maker_and_by_place() -> None:
    rows = alternatives.credentials()

    by_maker = sum(len(texts) for name, texts in rows.items() if name in made_quality.MAKERS)
    by_place = sum(len(texts) for name, texts in rows.items() if name.startswith("all, "))
    assert by_maker == by_place == 12 * 4 * 18
