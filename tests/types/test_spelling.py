"""Names that servers hold for one, and names that nobody does."""

from __future__ import annotations

import pytest

from proxy.types.spelling import folded, squeezed


@pytest.mark.parametrize(
    "name", ["max_tokens", "MAX_TOKENS", "maxTokens", "MaxTokens", "max-tokens", "max_token\u017f"]
)
def test_spellings_of_one_name_have_the_same_in_common(name: str) -> None:
    assert squeezed(name) == squeezed("max_tokens")


@pytest.mark.parametrize("name", ["max_token", "max tokens", "max.tokens", "tokens_max"])
def test_other_names_have_not(name: str) -> None:
    assert squeezed(name) != squeezed("max_tokens")


def test_letters_alone_are_folded_without_regard_to_marks() -> None:
    assert folded("MAX_Tokens") == "max_tokens"
    assert folded("\uff2dodel") == folded("model")
    assert folded("maxTokens") != folded("max_tokens")
