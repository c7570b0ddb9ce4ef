"""Normalization of field names."""

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
def test_spellings_of_a_name_are_equal(name: str) -> None:
    assert squeezed(name) == squeezed("max_tokens")


def test_other_names_differ() -> None:
    names = ("max_token", "max tokens", "max.tokens", "tokens_max")

    assert squeezed("max_tokens") not in map(squeezed, names)


def test_folding_keeps_separators() -> None:
    assert folded("MAX_Tokens") == "max_tokens"
    assert folded("\uff2dodel") == folded("model")
    assert folded("maxTokens") != folded("max_tokens")


def test_all_forms_of_ascii_are_folded() -> None:
    surrogates = range(0xD800, 0xE000)
    every = [chr(code) for code in range(sys.maxunicode + 1) if code not in surrogates]
    document = {name: normalize("NFKC", normalize("NFKC", name).casefold()) for name in every}

    for name, form in document.items():
        if re.fullmatch("[a-z0-9_.-]+", form):
            assert folded(name) == form, hex(ord(name))


def test_folded_characters_expand_little() -> None:
    codes = [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]
    every = [name for name in map(chr, codes) if _FORMS_OF_ASCII.fullmatch(name)]

    assert not any(map(combining, every))
    assert max(len(normalize("NFKD", name)) for name in every) <= 8


@pytest.mark.parametrize("name", ["a" + "\u0315\u0316" * 100, "a" + "\ufdfa" * 200, "\ufdfa"])
def test_expensive_names_are_not_folded(name: str) -> None:
    assert folded(name) is name  # folding makes a text of its own
