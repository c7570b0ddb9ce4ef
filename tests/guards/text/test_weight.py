"""How much work a text is."""

from __future__ import annotations

from proxy.guards.text.text_walker import BEYOND_ASCII, IN_A_SECOND, weight_of, weight_of_work


def test_letters_beyond_ascii_are_more_work() -> None:
    assert weight_of("abc") == 3
    assert weight_of("abç") == 3 * BEYOND_ASCII


def test_work_that_was_measured_weighs_as_much_as_what_takes_as_long() -> None:
    assert weight_of_work(0.0) == 0
    assert weight_of_work(2.0) == 2 * IN_A_SECOND
