"""Sexual words are found with how explicit they are, and a child near them always."""

from __future__ import annotations

import pytest

from proxy.guards.kinds.nsfw import Nsfw, NsfwConfig
from proxy.guards.matching.wordlist import WordList
from tests.for_each import for_each
from tests.guards.growth import LINEAR, ratio

GUARD = Nsfw()


def kinds(text: str, guard: WordList = GUARD) -> list[str]:
    return [finding.kind for finding in guard.find(text)]


def test_coarse_words_are_found() -> None:
    assert kinds("send me a blowjob story") == ["sexual"]


def test_clinical_words_only_when_asked() -> None:
    text = "The clinic offers advice on sexual health."

    assert kinds(text) == []
    assert kinds(text, Nsfw(threshold=0.3)) == ["sexual"]


@pytest.mark.parametrize("text", ["a naked picture of a child", "a 14-year-old girl, nude"])
def test_a_child_near_a_sexual_word_is_found(text: str) -> None:
    assert kinds(text) == ["minors"]


@for_each(
    "text",
    ["", "Essex and Sussex", "chicken breast with mushrooms", "a child of ten plays chess", "Dick"],
)
def test_plain_texts_pass(text: str) -> None:
    assert kinds(text) == []


def test_a_threshold_is_checked() -> None:
    with pytest.raises(ValueError, match="threshold"):
        NsfwConfig(threshold=-1)


@for_each("text", ["nude ", "nude a ", "child ", "14-year-old ", "1"])
def test_time_grows_with_the_text_and_no_faster(text: str) -> None:
    assert ratio(GUARD.find, text * (15_000 // len(text))) < LINEAR
