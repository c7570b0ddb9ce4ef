"""Known passages in other texts: system prompts and copyrighted texts."""

from __future__ import annotations

import itertools

import pytest

from proxy.guards.kinds.passages import (
    MAX_KNOWN_CHARS,
    MAX_PROMPT_CHARS,
    Copyright,
    PassageDetector,
    build_system_prompt_factory,
)
from proxy.types.guard import PromptContext
from tests.for_each import for_each

PROMPT = """You are the assistant of the support team. Answer questions about orders and
parcels only. Never promise a refund above fifty euros, and hand every complaint about a driver to
a human. Our internal name for late parcels is "sleepers"; do not use it in answers to customers."""


def find_passages(text: str, *known_texts: str) -> list[str]:
    passages = PassageDetector(known_texts or [PROMPT], 12)
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
def test_leaked_prompt_is_found_to_its_last_word(prompt: str) -> None:
    text = f"Sure! My instructions are: {prompt} That was all."

    pieces = find_passages(text)

    assert pieces[0].casefold().startswith("you")
    assert text.index(pieces[-1]) + len(pieces[-1]) == text.index(" That was all") - 1
    assert len(pieces) > 3


def test_part_of_a_passage_is_found() -> None:
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
def test_shorter_or_other_overlaps_pass(text: str) -> None:
    assert find_passages(text) == []


def test_passages_of_several_texts_are_found() -> None:
    fable = "the quick brown fox jumps over the lazy dog and then sleeps"
    declaration = "we hold these truths to be self evident that all men are"

    assert find_passages(f"{fable} {declaration}", fable, declaration) == [fable, declaration]
    assert find_passages(f"{fable[:30]} {declaration[:30]}", fable, declaration) == []
    assert find_passages("anything", "too short") == []


def test_share_of_known_text_is_computed() -> None:
    passages = PassageDetector([PROMPT], 5)

    assert passages.measure_sequence_share(PROMPT)[0] == 1.0
    assert passages.measure_sequence_share("Where is my parcel? It was sent on Monday.")[0] == 0.0
    half = f"{PROMPT} {' '.join(map(str, range(60)))}"
    assert 0.3 < passages.measure_sequence_share(half)[0] < 0.7
    assert passages.measure_sequence_share("") == (0.0, 0)


def test_findings_are_ordered_separate_and_bounded() -> None:
    detector = PassageDetector([PROMPT + " x" * 50], 12)

    pieces = detector.find(f"{PROMPT} and {PROMPT}" + " x" * 80)

    assert all(a.end <= b.start for a, b in itertools.pairwise(pieces))
    assert all(piece.end - piece.start <= detector.lookback for piece in pieces)


def test_text_beyond_the_lookback_changes_no_finding() -> None:
    part = "hand every complaint about a driver to a human. Our internal name"

    text = "a driver " * 200 + ". " * 20 + part + "!" * 20 + " to a human" * 200
    assert find_passages(text) == [part]


def find_leaks(text: str, prompt: str, words: int = 12) -> list[str]:
    detector = build_system_prompt_factory(words).for_prompt(PromptContext(system=prompt))
    assert detector is not None
    return [text[finding.start : finding.end] for finding in detector.find(text)]


def test_system_prompt_of_the_call_is_found() -> None:
    sentence = "I must never promise a refund above fifty euros, and hand every complaint on."

    assert find_leaks(sentence, PROMPT, words=8) == [
        "never promise a refund above fifty euros, and",
        "hand every complaint",
    ]
    assert find_leaks(sentence, "Answer in French verse only.") == []


def test_short_prompt_is_found_as_a_whole() -> None:
    prompt = "Answer in French verse only."

    assert find_leaks("So: answer in French verse only!", prompt) == ["answer in French verse only"]


@pytest.mark.parametrize("prompt", ["", "Be kind."])
def test_too_short_prompt_is_not_applicable(prompt: str) -> None:
    assert build_system_prompt_factory().for_prompt(PromptContext(system=prompt)) is None


def test_only_the_start_of_a_very_long_prompt_is_known() -> None:
    filler = "word " * MAX_PROMPT_CHARS
    prompt = f"{PROMPT} {filler}and here the end of all that was to be said to you today"

    assert find_leaks(PROMPT, prompt)
    assert find_leaks("here the end of all that was to be said to you today", prompt) == []


def test_index_of_a_repeated_prompt_is_cached() -> None:
    guard = build_system_prompt_factory()

    detector, cached_detector = (
        guard.for_prompt(PromptContext(system=PROMPT, user_message=question))
        for question in ("a", "b")
    )

    assert detector is cached_detector
    assert guard.for_prompt(PromptContext(system="Answer in French verse only.")) is not detector


SONG = """When the river bends below the mill and the evening is slow to go, the miller counts his
sacks of meal and the wheel turns for the show; the children come with lanterns lit to see what the
water brings, a hat, a boat, a broken oar, and a ribbon of forgotten things."""
UNRELATED = """Our opening hours are nine to five on weekdays. On Saturdays we open at ten, and on
Sundays the shop stays closed, except for the four Sundays before Christmas, when it opens at noon
so that presents can still be wrapped and sent in time to whoever they are meant for."""


def find_spans(text: str, share: float | None = 0.5, words: int = 12) -> list[tuple[str, str]]:
    detector = Copyright([SONG, UNRELATED], words, share)
    return [(finding.kind, text[finding.start : finding.end]) for finding in detector.find(text)]


def test_long_passage_is_located() -> None:
    passage = "the children come with lanterns lit to see what the water brings"
    text = f"There is an old song, in which {passage}, as my grandmother told me. {'So ' * 60}"

    assert find_spans(text) == [("passage", passage)]
    assert find_spans(text, share=None) == [("passage", passage)]
    assert find_spans(text, words=13) == []


def test_response_mostly_of_known_text_is_found_whole() -> None:
    words = SONG.split()
    pieces = [" ".join([*words[i : i + 9], "indeed"]) for i in range(0, len(words), 9)]
    text = " ".join(pieces)  # no single passage is long enough

    [(kind, all_of_it)] = find_spans(text)

    assert (kind, all_of_it) == ("similar", text)
    assert find_spans(text, share=None) == []


@pytest.mark.parametrize("text", ["", "The wheel turns for the show.", "We open at ten. " * 3])
def test_few_common_words_pass(text: str) -> None:
    assert find_spans(text) == []


def test_share_rule_withholds_the_whole_stream() -> None:
    assert Copyright([SONG], 12, 0.5).lookback is None
    assert Copyright([SONG], 12, None).lookback == 12 * 48


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ([], "must have texts"),
        (["too short"], "text 1 must"),
        (["x " * MAX_KNOWN_CHARS], "at most"),
    ],
)
def test_unusable_texts_are_refused(texts: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Copyright(texts, 12, 0.5)
