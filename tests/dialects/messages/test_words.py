"""No two words of a chat are one of Messages: what goes one way comes back the same."""

from __future__ import annotations

import pytest

from proxy.dialects.messages.words import CHOICES, TIERS, turned


@pytest.mark.parametrize("words", [CHOICES, TIERS])
def test_what_goes_one_way_comes_back(words: dict[str, str]) -> None:
    assert turned(turned(words)) == words
