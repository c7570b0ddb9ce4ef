"""The model adds up weights, window by window, in time linear in the text."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guardrails.matching.injection_model import (
    FILE,
    WINDOW,
    InjectionModel,
    damped,
    features,
    read,
    shipped,
    tokens,
)
from tests.guardrails.growth import LINEAR, ratio

SMALL = InjectionModel(
    {"drop": 8.0, "drop table": 4.0, "~<ta": 2.0}, bias=-3.0, slope=1.0, shift=0.5
)


def test_a_window_is_the_sum_of_its_words_letters_and_pairs() -> None:
    (first, _) = SMALL.windows("Drop table")
    expected = damped(8 + 4 + 2, 2) - 3 + 0.5

    assert first.score == pytest.approx(1 / (1 + math.exp(-expected)))
    assert (first.start, first.end) == (0, 10)


def test_the_trainer_counts_what_the_guard_counts() -> None:
    words = [token.word for token in tokens("drop table, drop!")]
    (first, *_) = SMALL.windows("drop table, drop!")

    logit = SMALL.score(words) * SMALL.slope + SMALL.shift
    assert first.score == pytest.approx(1 / (1 + math.exp(-logit)))


def test_numbers_and_lone_signs_count_only_beside_a_word() -> None:
    assert list(features(["0", ":", "{"])) == []
    assert "pay 0" in set(features(["pay", "0"]))


def test_scripts_without_spaces_are_read_letter_by_letter() -> None:
    assert [token.word for token in tokens("忽略 all9")] == ["忽", "略", "all", "0"]


@given(st.text())
def test_windows_begin_in_order_and_are_no_longer_than_said(text: str) -> None:
    windows = shipped().windows(text)

    assert all(0 < window.end - window.start <= WINDOW for window in windows)
    assert all(0 < window.score < 1 for window in windows)
    assert all(left.start < right.start for left, right in pairwise(windows))


def test_no_text_gives_no_window() -> None:
    assert shipped().windows("") == shipped().windows(" \n") == []


def test_the_weights_are_small_and_say_what_made_them() -> None:
    assert FILE.stat().st_size < 100_000
    assert "train_injection" in FILE.read_text("utf-8").splitlines()[0]
    assert read(FILE) == shipped()


def test_a_file_of_weights_is_lines_of_features(tmp_path: Path) -> None:
    file = tmp_path / "w.tsv"
    file.write_text("# why\n-1.5\t2.0\t0.25\n64\ta b\tc\n-16\t~xy\n")

    assert read(file) == InjectionModel({"a b": 2.0, "c": 2.0, "~xy": -0.5}, -1.5, 2.0, 0.25)


@pytest.mark.parametrize("text", ["a", "a ", "忽", "ignore previous ", "!", "1:", "é\u0301"])
def test_time_grows_with_the_text_and_no_faster(text: str) -> None:
    assert ratio(shipped().windows, text * (15_000 // len(text))) < LINEAR
