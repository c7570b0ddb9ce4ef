"""The last letter of a script without spaces is found as far as it is asked for."""

from __future__ import annotations

from proxy.guardrails.matching.scripts import UNSPACED_LETTER, last_unspaced
from tests.for_each import for_each


@for_each(
    ("text", "since", "end", "place"),
    [
        ("河馬 is it", 0, 8, 1),
        ("河馬 is it", 0, 1, 0),
        ("河馬 is it", 2, 8, -1),
        ("it is a hippo", 0, 13, -1),
        ("\n河\nx", 0, 4, 1),
        ("", 0, 0, -1),
    ],
)
def test_the_last_letter_is_found(text: str, since: int, end: int, place: int) -> None:
    assert last_unspaced(text, since, end) == place


def test_letters_of_words_that_stand_apart_are_none() -> None:
    kinds = {each: bool(UNSPACED_LETTER.match(each)) for each in "河のノผកမaéя한ا，1"}  # noqa: RUF001

    assert kinds == {each: each in "河のノผកမ" for each in kinds}
