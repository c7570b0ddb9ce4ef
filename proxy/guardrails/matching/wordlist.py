"""The shipped list of English obscenities, as rules: a word, its kind, and how bad it is.

A list knows no context: it takes a quotation, a medical text or a surname for the offence, and
misses whatever offends in clean words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path

import re2

from proxy.guardrails.matching.phrase_rules import PhraseRule

FILE = Path(__file__).parent / "data" / "obscenity_en.tsv"


@lru_cache(maxsize=1)
def lines() -> tuple[tuple[str, float, tuple[str, ...]], ...]:
    """Return kind, severity and words of each line. The file is read once."""
    read = []
    for line in FILE.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            kind, severity, *words = line.split("\t")
            read.append((kind, float(severity), tuple(words)))
    return tuple(read)


def rules(kinds: Collection[str], least: float) -> Iterator[PhraseRule]:
    """Return a rule for each kind and severity of at least ``least``."""
    for kind, severity, words in lines():
        if kind in kinds and severity >= least:
            yield PhraseRule(kind, severity, "|".join(map(whole, longest_first(words))))


def longest_first(words: Collection[str]) -> list[str]:
    """Order words so that none hides a longer one that begins like it."""
    return sorted(words, key=lambda word: (-len(word), word))


def whole(word: str) -> str:
    """Return the pattern of a whole word. A sign at an edge needs no word boundary."""
    left = r"\b" if word[0].isalnum() else ""
    right = r"\b" if word[-1].isalnum() else ""
    return f"{left}{re2.escape(word)}{right}"
