from __future__ import annotations

import random
from pathlib import Path

import pytest

from proxy.guardrails.sponge import Sponge
from tests.guardrails.samples import growth

TOP = Path(__file__).parents[2]
SPONGE = Sponge()


def kinds(text: str) -> list[str]:
    return [each.kind for each in SPONGE.find(text)]


@pytest.mark.parametrize("phrase", ["order ", "search the order ", "Order, ORDER! "])
def test_a_phrase_said_again_and_again_is_repetition(phrase: str) -> None:
    text = phrase * 400

    (finding,) = SPONGE.find(text)

    assert (finding.start, finding.end, finding.kind) == (0, len(text), "repetition")


def test_a_phrase_among_other_text_is_found_by_its_share() -> None:
    chance = random.Random(3)
    words = ["".join(chance.choices("abcdefgh", k=6)) for _ in range(300)]

    assert kinds(" ".join(words) + " so it is" * 400) == ["repetition"]
    assert kinds(" ".join(words) + " so it is" * 20) == []


@pytest.mark.parametrize("phrase", ["abcdefghijklmnopqrstuvwxyz012345", "Say it again and again. "])
def test_longer_phrases_are_told_by_their_compression(phrase: str) -> None:
    assert kinds(phrase * 100) == ["compression"]


def test_a_run_of_one_character_is_found_at_its_place() -> None:
    text = "so " + "a" * 500 + "rgh, " + "b" * 400

    (finding,) = SPONGE.find(text)

    assert (text[finding.start : finding.end], finding.kind) == ("a" * 500, "run")


@pytest.mark.parametrize("text", ["", "a", "yes yes yes yes", "-" * 80, "ha " * 100, " " * 900])
def test_short_texts_and_small_repetitions_pass(text: str) -> None:
    assert kinds(text) == []


def test_documentation_and_code_pass() -> None:
    files = [*TOP.glob("docs/**/*.md"), *TOP.glob("proxy/**/*.py"), *TOP.glob("policies/*.yaml")]

    assert {file.name: kinds(file.read_text()) for file in files if kinds(file.read_text())} == {}


def test_it_needs_the_whole_text() -> None:
    assert SPONGE.reach is None


@pytest.mark.parametrize("piece", ["a", "ab", "a" * 15 + "b", "a ", "a" * 499 + " ", "order 1 "])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    assert growth(SPONGE, lambda size: (piece * size)[:size]) < 24
