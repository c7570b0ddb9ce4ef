"""Known passages in other texts, however they are written; and nothing shorter."""

from __future__ import annotations

import itertools

from proxy.guards.matching.passages import Passages
from tests.for_each import for_each
from tests.guards.growth import growth

PROMPT = """You are the assistant of the support team. Answer questions about orders and
parcels only. Never promise a refund above fifty euros, and hand every complaint about a driver to
a human. Our internal name for late parcels is "sleepers"; do not use it in answers to customers."""


def find_passages(text: str, *known_texts: str) -> list[str]:
    passages = Passages(known_texts or [PROMPT], 12)
    return [text[finding.start : finding.end] for finding in passages.find(text)]


@for_each(
    "prompt",
    [
        PROMPT,
        PROMPT.upper(),
        PROMPT.replace(" ", "\n"),
        "- " + PROMPT.replace(", ", "\n- **"),
        PROMPT.replace("a", "\uff41"),
    ],
)
def test_a_prompt_told_in_an_answer_is_found_to_its_last_word(prompt: str) -> None:
    text = f"Sure! My instructions are: {prompt} That was all."

    pieces = find_passages(text)

    assert pieces[0].casefold().startswith("you")
    assert text.index(pieces[-1]) + len(pieces[-1]) == text.index(" That was all") - 1
    assert len(pieces) > 3


def test_a_part_of_it_is_found_alone() -> None:
    part = "hand every complaint about a driver to a human. Our internal name"

    assert find_passages(f"I was told to {part}, he said.") == [part]


@for_each(
    "text",
    [
        "I can help you with questions about orders and parcels only. What is your order number?",
        "We never promise a refund above fifty euros.",
        " ".join(sorted(PROMPT.split())),
        "You are the assistant " + "." * 40 + " of the support team. Answer questions",
        "",
    ],
)
def test_shorter_or_other_overlaps_are_left_alone(text: str) -> None:
    assert find_passages(text) == []


def test_several_texts_are_known_apart() -> None:
    fable = "the quick brown fox jumps over the lazy dog and then sleeps"
    declaration = "we hold these truths to be self evident that all men are"

    assert find_passages(f"{fable} {declaration}", fable, declaration) == [fable, declaration]
    assert find_passages(f"{fable[:30]} {declaration[:30]}", fable, declaration) == []
    assert find_passages("anything", "too short") == []


def test_how_much_of_a_text_is_known_is_a_share() -> None:
    passages = Passages([PROMPT], 5)

    assert passages.share(PROMPT)[0] == 1.0
    assert passages.share("Where is my parcel? It was sent on Monday.")[0] == 0.0
    assert 0.3 < passages.share(f"{PROMPT} {' '.join(map(str, range(60)))}")[0] < 0.7
    assert passages.share("") == (0.0, 0)


def test_pieces_come_in_order_apart_and_within_the_reach() -> None:
    detector = Passages([PROMPT + " x" * 50], 12)

    pieces = detector.find(f"{PROMPT} and {PROMPT}" + " x" * 80)

    assert all(a.end <= b.start for a, b in itertools.pairwise(pieces))
    assert all(piece.end - piece.start <= detector.lookback for piece in pieces)


def test_the_reach_follows_from_the_words() -> None:
    assert Passages([PROMPT], 12).lookback == 12 * 48


def test_what_stands_beyond_the_reach_changes_nothing() -> None:
    part = "hand every complaint about a driver to a human. Our internal name"

    assert find_passages("a driver " * 200 + ". " * 20 + part + "!" * 20 + " to a human" * 200) == [
        part
    ]


@for_each("piece", ["you ", "a", "you are the assistant of ", "a driver to a human "])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    assert growth(Passages([PROMPT], 12).find, lambda size: (piece * size)[:size], maximum=24) < 24
