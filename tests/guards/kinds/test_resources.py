from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.kinds.resources import (
    SLICE_LENGTH,
    WORD,
    Length,
    Sponge,
    count_lines,
    estimate_tokens,
    slice_at_word_ends,
)
from proxy.types.guard import Finding
from tests.for_each import for_each

TOP = Path(__file__).parents[3]
SPONGE = Sponge()


def kinds(text: str) -> list[str]:
    return [finding.kind for finding in SPONGE.find(text)]


@pytest.mark.parametrize("phrase", ["order ", "search the order ", "Order, ORDER! "])
def test_repeated_phrase_is_found(phrase: str) -> None:
    text = phrase * 400

    (finding,) = SPONGE.find(text)

    assert (finding.start, finding.end, finding.kind) == (0, len(text), "repetition")


def test_repeated_phrase_is_found_by_its_share() -> None:
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefgh", k=6)) for _ in range(300)]

    assert kinds(" ".join(words) + " so it is" * 400) == ["repetition"]
    assert kinds(" ".join(words) + " so it is" * 20) == []


@pytest.mark.parametrize("phrase", ["abcdefghijklmnopqrstuvwxyz012345", "Say it again and again. "])
def test_long_repeated_phrases_are_found_by_compression(phrase: str) -> None:
    assert kinds(phrase * 100) == ["compression"]


def test_run_of_one_character_is_located() -> None:
    text = "so " + "a" * 500 + "rgh, " + "b" * 400

    (finding,) = SPONGE.find(text)

    assert (text[finding.start : finding.end], finding.kind) == ("a" * 500, "run")


@for_each("text", ["", "a", "yes yes yes yes", "-" * 80, "ha " * 100, " " * 900])
def test_short_texts_and_small_repetitions_pass(text: str) -> None:
    assert kinds(text) == []


def test_documentation_and_code_pass() -> None:
    files = [*TOP.glob("docs/**/*.md"), *TOP.glob("proxy/**/*.py"), *TOP.glob("policies/*.yaml")]

    assert {file.name: kinds(file.read_text()) for file in files if kinds(file.read_text())} == {}


@given(
    st.lists(st.sampled_from(["one", "two ", " ", "İ", "ß", "漢字", "-", "e\u0301", "three\n"])),
    st.integers(8, 20),
)
def test_words_in_slices_equal_those_of_the_whole_text(parts: list[str], size: int) -> None:
    text = "".join(parts)
    cut = [*slice_at_word_ends(text, size)]

    assert "".join(cut) == text
    assert max(map(len, cut), default=0) <= 2 * size
    if max(map(len, WORD.findall(text)), default=0) <= size:
        sliced = [word for piece in cut for word in WORD.findall(piece.casefold())]
        assert sliced == WORD.findall(text.casefold())


@pytest.mark.parametrize("words", [1, 3])
def test_repetition_across_slices_is_found(words: int) -> None:
    repeats = Sponge(sequence_words=words, min_repeated_share=0.999, min_compression_ratio=0.0)
    text = "so it goes " * SLICE_LENGTH if words == 3 else "so " * SLICE_LENGTH

    assert [finding.kind for finding in repeats.find(text)] == ["repetition"]


def test_text_within_bounds_passes() -> None:
    assert list(Length(characters=5, lines=1, tokens=2).find("order")) == []
    assert list(Length().find("order" * 1000)) == []


@for_each(
    ("bounds", "kind"),
    [
        (Length(characters=10), "characters"),
        (Length(lines=1), "lines"),
        (Length(tokens=2), "tokens"),
        (Length(characters=99, lines=1, tokens=1), "lines"),
    ],
)
def test_first_exceeded_bound_finds_the_whole_text(bounds: Length, kind: str) -> None:
    assert list(bounds.find("order\nsearch")) == [Finding(0, 12, kind)]
    assert bounds.lookback is None


def test_lines_are_counted() -> None:
    assert [count_lines(text) for text in ("", "a", "a\n", "a\nb", "\n\n")] == [0, 1, 1, 2, 2]


def test_tokens_are_estimated_as_everywhere() -> None:
    assert [estimate_tokens(text) for text in ("", "a", "order", "日本", "😀")] == [0, 1, 2, 2, 2]
