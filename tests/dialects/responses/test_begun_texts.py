"""What a part or a call says where it begins goes before its first delta, once."""

from __future__ import annotations

import pytest

from proxy.dialects.responses.begun_texts import BegunTexts
from tests.doubles import Json
from tests.for_each import for_each

PART: Json = {"type": "output_text", "text": "It is "}


@for_each(
    ("begun", "delta", "said"),
    [
        ("It is ", "Paris", "It is Paris"),
        ("It is ", "It is ", "It is "),
        ("It is ", "It is Paris", "It is Paris"),
        ("It is ", "It", "It"),
        ("", "Paris", "Paris"),
        (None, "Paris", "Paris"),
    ],
)
def test_a_text_goes_on_from_where_it_began(begun: object, delta: str, said: str) -> None:
    texts = BegunTexts()

    assert texts.take({**PART, "text": begun}, 1, 2) == {**PART, "text": ""}
    assert texts.with_delta((1, "text", 0), "x") == "x"
    assert texts.with_delta((1, "text", 2), delta) == said
    assert texts.with_delta((1, "text", 2), "!") == "!"


@pytest.mark.parametrize("item", [{}, {"type": "message"}, {"type": ["x"], "text": "It"}])
def test_what_has_no_text_of_its_own_stays_as_it_is(item: Json) -> None:
    assert BegunTexts().take(item, 0) is item
