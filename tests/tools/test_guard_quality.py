"""What the page of figures is computed by."""

from __future__ import annotations

import pytest

from proxy.guardrails.kinds.nsfw import Nsfw
from tools import guard_quality


def test_the_area_under_the_curve_counts_ties_by_half() -> None:
    assert guard_quality.auc([0.9, 0.5], [0.5, 0.1]) == pytest.approx(3.5 / 4)


def test_a_share_is_of_texts_with_a_finding() -> None:
    assert guard_quality.share(Nsfw(), ["a nude child", "a hat"]) == "0.500"
    assert guard_quality.share(Nsfw(), []) == "-"


def test_grounded_and_relevant_are_as_the_page_says() -> None:
    page = guard_quality.PAGE.read_text("utf-8")

    assert [line for line in guard_quality.truth() if line.startswith("|")]
    assert all(line in page for line in guard_quality.truth() if line.startswith("| "))
