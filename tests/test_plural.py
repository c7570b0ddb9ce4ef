"""Counts in words."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.plural import counted
from tests.for_each import for_each

PRODUCT = Path(__file__).parents[1] / "proxy"
BY_HAND = (
    r"[^/]\{[a-z][^{}\"]*\} (?:attempts|calls|days|decisions|lines|requests|runs|times|tokens)\b"
)


@for_each(("count", "words"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (1000, "1000 calls")])
def test_one_is_told_from_several(count: int, words: str) -> None:
    assert counted(count, "call") == words


def test_several_may_be_another_phrase() -> None:
    said = [counted(count, "line is none", "lines are none") for count in (1, 2)]

    assert said == ["1 line is none", "2 lines are none"]


def test_no_message_counts_by_hand() -> None:
    """A number that may be 1 before a plural is ``counted``."""
    texts = {file: file.read_text() for file in PRODUCT.rglob("*.py")}

    assert {
        file: found for file, text in texts.items() if (found := re.findall(BY_HAND, text))
    } == {}
