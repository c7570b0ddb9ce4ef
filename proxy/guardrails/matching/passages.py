"""Passages of known texts in other texts: sequences of their words, and how much is made of them.

It finds what is repeated word for word, whatever the case, punctuation and layout; not what is
translated, told in other words, encoded or spelled apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from proxy.types.guard import Finding

# Longer words are cut, and a longer gap ends a sequence: both so that its length is bounded.
WORD, GAP = 32, 16
WORD_PATTERN = re.compile(rf"[^\W_]{{1,{WORD}}}")

Word = tuple[int, int, str]


class Passages:
    """Finds sequences of ``words`` words of the texts; longer ones in pieces of as many.

    Of the texts it keeps the words and a number for each sequence: some 100 bytes for a word.
    """

    __slots__ = ("_known", "_sequences", "_words")

    def __init__(self, texts: Sequence[str], words: int) -> None:
        self._words = words
        known: set[str] = set()
        sequences: set[int] = set()
        for text in texts:
            spoken = tuple(compared_words(text))
            known.update(spoken)
            sequences.update(grams(spoken, words))
        self._known = frozenset(known)
        self._sequences = frozenset(sequences)

    @property
    def reach(self) -> int:
        return self._words * (WORD + GAP)

    def find(self, text: str) -> Sequence[Finding]:
        if not self._sequences:
            return ()
        return [finding for run in self._runs(text) for finding in self._pieces(run)]

    def share(self, text: str) -> tuple[float, int]:
        """Return the share of a text's sequences that are known, and how many it has."""
        all_of_it = grams(tuple(compared_words(text)), self._words)
        known = sum(each in self._sequences for each in all_of_it)
        return (known / len(all_of_it) if all_of_it else 0.0), len(all_of_it)

    def _runs(self, text: str) -> Iterator[Sequence[Word]]:
        """Known words that follow each other, where they are enough for a sequence."""
        run: list[Word] = []
        for word in _words(text):
            if word[2] in self._known and (not run or word[0] - run[-1][1] <= GAP):
                run.append(word)
                continue
            if len(run) >= self._words:
                yield run
            run = [word] if word[2] in self._known else []
        if len(run) >= self._words:
            yield run

    def _pieces(self, run: Sequence[Word]) -> Iterator[Finding]:
        size = self._words
        for first, last in self._spoken(tuple(word for _, _, word in run)):
            for begin in range(first, last, size):
                end = min(begin + size, last)
                yield Finding(run[begin][0], run[end - 1][1], "overlap")

    def _spoken(self, words: tuple[str, ...]) -> Sequence[tuple[int, int]]:
        """Which of the words are in known sequences: from, and up to."""
        spans: list[tuple[int, int]] = []
        for first, gram in enumerate(grams(words, self._words)):
            if gram not in self._sequences:
                continue
            last = first + self._words
            if spans and first <= spans[-1][1]:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
        return spans


def grams(words: tuple[str, ...], size: int) -> list[int]:
    """Return a hash for each sequence of ``size`` words."""
    return [hash(words[i : i + size]) for i in range(len(words) - size + 1)]


def compared_words(text: str) -> Iterator[str]:
    """Return the words of a text in the form in which they are compared."""
    return (word for _, _, word in _words(text))


def _words(text: str) -> Iterator[Word]:
    plain = text.isascii()
    for word in WORD_PATTERN.finditer(text):
        spoken = word[0] if plain else unicodedata.normalize("NFKC", word[0])
        yield *word.span(), spoken.casefold()
