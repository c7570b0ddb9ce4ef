"""Texts that read in one way alone: one pass tells what a search for each disguise would."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.guards.text import base64_text, within_words
from proxy.guards.text.confusables import CONTROLS
from proxy.guards.text.normalize import _apart, variants
from proxy.guards.text.within_words import has_one_reading

PIECES = (
    "a", "b c", " ", "\n", "\r", "\t", "\0", "\x0b", "\x1f", "\x7f", "&", "%", "\\", "-", "_", "9",
    "a b c", "x y z w", "a\nb\nc", "a1b2c", "ab c d", "word", "Base64,", "64,", "A" * 15, "/+",
)  # fmt: skip
TEXT = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.text(st.characters(max_codepoint=127), max_size=40),
)


def searched(raw: bytes) -> bool:
    """Return whether a text has one reading, by a search for each disguise."""
    controls = [range(0, 9), range(0x0B, 0x0D), range(0x0E, 0x20), [0x7F]]
    hidden = bytes(each for part in controls for each in part)
    plain = not any(each in b"&%\\" or each in hidden for each in raw)
    within = re.search(within_words.SIEVE.encode(), raw)
    return plain and not (base64_text.possible(raw) or _apart(raw) or within)


@given(TEXT)
@example("")
@example("a b c")
@example("x" * 16)
@example("0*0")
@example("a-\nb")
def test_one_pass_tells_what_a_search_for_each_disguise_tells(text: str) -> None:
    assert has_one_reading(text.encode()) is searched(text.encode())


@given(st.lists(TEXT, max_size=3))
def test_lines_that_read_in_one_way_have_no_other_reading_each(texts: list[str]) -> None:
    if has_one_reading("\n".join(texts).encode()):
        assert all(len(variants(text)) == 1 for text in texts)


def test_the_controls_are_those_that_show_nothing() -> None:
    assert CONTROLS == "\0-\x08\x0b\x0c\x0e-\x1f\x7f"
