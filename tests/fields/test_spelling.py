"""Names that servers hold for one, and names that nobody does."""

from __future__ import annotations

import re
import sys
from unicodedata import combining, normalize

import pytest

from proxy.fields.spelling import _FORMS_OF_ASCII, folded, squeezed
from tests.for_each import for_each


@for_each(
    "name", ["max_tokens", "MAX_TOKENS", "maxTokens", "MaxTokens", "max-tokens", "max_token\u017f"]
)
def test_spellings_of_one_name_have_the_same_in_common(name: str) -> None:
    assert squeezed(name) == squeezed("max_tokens")


@for_each("name", ["max_token", "max tokens", "max.tokens", "tokens_max"])
def test_other_names_have_not(name: str) -> None:
    assert squeezed(name) != squeezed("max_tokens")


def test_letters_alone_are_folded_without_regard_to_marks() -> None:
    assert folded("MAX_Tokens") == "max_tokens"
    assert folded("\uff2dodel") == folded("model")
    assert folded("maxTokens") != folded("max_tokens")


def test_every_character_is_folded_that_is_a_form_of_one_of_a_name() -> None:
    surrogates = range(0xD800, 0xE000)
    every = [chr(code) for code in range(sys.maxunicode + 1) if code not in surrogates]
    document = {name: normalize("NFKC", normalize("NFKC", name).casefold()) for name in every}

    for name, form in document.items():
        if re.fullmatch("[a-z0-9_.-]+", form):
            assert folded(name) == form, hex(ord(name))


def test_no_character_that_is_folded_takes_long() -> None:
    codes = [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]
    every = [name for name in map(chr, codes) if _FORMS_OF_ASCII.fullmatch(name)]

    assert not any(map(combining, every))
    assert max(len(normalize("NFKD", name)) for name in every) <= 8


@pytest.mark.parametrize("name", ["a" + "\u0315\u0316" * 100, "a" + "\ufdfa" * 200, "\ufdfa"])
def test_a_name_that_would_take_long_is_left_as_it_is(name: str) -> None:
    assert folded(name) is name  # folding makes a text of its own
