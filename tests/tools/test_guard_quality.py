"""What the page of figures is computed by."""

from __future__ import annotations

import pytest

from proxy.guards.kinds.nsfw import Nsfw
from tools import confidence, guard_quality


def test_the_area_under_the_curve_counts_ties_by_half() -> None:
    assert guard_quality.auc([0.9, 0.5], [0.5, 0.1]) == pytest.approx(3.5 / 4)


def test_a_share_is_of_texts_with_a_finding() -> None:
    assert guard_quality.share(Nsfw(), ["a nude child", "a hat"]) == "0.500"
    assert guard_quality.share(Nsfw(), []) == "-"


def test_grounded_and_relevant_are_as_the_page_says() -> None:
    page = guard_quality.PAGE.read_text("utf-8")

    assert [line for line in guard_quality.truth() if line.startswith("|")]
    assert all(line in page for line in guard_quality.truth() if line.startswith("| "))


def test_a_count_is_given_with_what_its_share_may_be() -> None:
    assert confidence.wilson(0, 0) == "-"
    assert confidence.wilson(0, 100) == "0/100 (0.000-0.037)"
    assert confidence.wilson(50, 100) == "50/100 (0.404-0.596)"
    assert confidence.wilson(100, 100) == "100/100 (0.963-1.000)"


def test_the_page_was_measured_with_the_rules_that_are_in_force() -> None:
    assert guard_quality.fingerprint() in guard_quality.PAGE.read_text("utf-8")
