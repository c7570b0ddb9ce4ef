"""Protected texts: passages, likeness, and what a policy may not ask for."""

from __future__ import annotations

import pytest

from proxy.guards.kinds.copyright import MAX_CHARACTERS, Copyright
from tests.guards.growth import growth

SONG = """When the river bends below the mill and the evening is slow to go, the miller counts his
sacks of meal and the wheel turns for the show; the children come with lanterns lit to see what the
water brings, a hat, a boat, a broken oar, and a ribbon of forgotten things."""
UNRELATED = """Our opening hours are nine to five on weekdays. On Saturdays we open at ten, and on
Sundays the shop stays closed, except for the four Sundays before Christmas, when it opens at noon
so that presents can still be wrapped and sent in time to whoever they are meant for."""


def find_spans(text: str, share: float | None = 0.5, words: int = 12) -> list[tuple[str, str]]:
    detector = Copyright([SONG, UNRELATED], words, share)
    return [(finding.kind, text[finding.start : finding.end]) for finding in detector.find(text)]


def test_a_long_passage_is_found_where_it_stands() -> None:
    passage = "the children come with lanterns lit to see what the water brings"
    text = f"There is an old song, in which {passage}, as my grandmother told me. {'So ' * 60}"

    assert find_spans(text) == [("passage", passage)]
    assert find_spans(text, share=None) == [("passage", passage)]
    assert find_spans(text, words=13) == []


def test_an_answer_that_is_mostly_made_of_it_is_found_as_a_whole() -> None:
    words = SONG.split()
    pieces = [" ".join([*words[i : i + 9], "indeed"]) for i in range(0, len(words), 9)]
    text = " ".join(pieces)  # no passage is long enough

    [(kind, all_of_it)] = find_spans(text)

    assert (kind, all_of_it) == ("similar", text)
    assert find_spans(text, share=None) == []


@pytest.mark.parametrize("text", ["", "The wheel turns for the show.", "We open at ten. " * 3])
def test_few_words_in_common_are_left_alone(text: str) -> None:
    assert find_spans(text) == []


def test_only_passages_let_a_stream_go_on() -> None:
    assert Copyright([SONG], 12, 0.5).lookback is None
    assert Copyright([SONG], 12, None).lookback == 12 * 48


@pytest.mark.parametrize(
    ("texts", "problem"),
    [([], "must have texts"), (["too short"], "text 1 must"), (["x " * MAX_CHARACTERS], "at most")],
)
def test_texts_that_cannot_be_looked_for_are_told(texts: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Copyright(texts, 12, 0.5)


@pytest.mark.parametrize("piece", ["when the river bends ", "x ", "turns for the show; the "])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    assert (
        growth(Copyright([SONG], 12, 0.5).find, lambda size: (piece * size)[:size], maximum=40) < 40
    )  # 64 if squared
