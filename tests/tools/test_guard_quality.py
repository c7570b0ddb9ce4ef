"""Statistics and sections of the page of guard quality."""

from __future__ import annotations

import pytest

from proxy.guards.kinds.wordlist import Nsfw
from tests.for_each import for_each
from tools import guard_quality
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
