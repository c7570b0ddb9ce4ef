"""The system prompt of a call, found in its answer: long sequences of its words.

Made for each call, with that call's prompt. It finds what is repeated word for word, whatever the
case, punctuation and layout; not what is translated, told in other words, encoded or spelled apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from proxy.types.guard import Finding

WORDS, LEAST_WORDS = 12, 5
# Longer words are cut, and a longer gap ends a sequence: both so that its length is bounded.
WORD, GAP = 32, 16
WORD_PATTERN = re.compile(rf"[^\W_]{{1,{WORD}}}")

Word = tuple[int, int, str]


class SystemPrompt:
    """Finds sequences of ``words`` words of the prompt; longer ones in pieces of as many.

    A prompt of fewer words is found as a whole, one of fewer than ``LEAST_WORDS`` never.
    """

    __slots__ = ("_known", "_sequences", "_words")

    def __init__(self, prompt: str, words: int = WORDS) -> None:
        spoken = tuple(word for _, _, word in _words(prompt))
        self._words = min(max(words, LEAST_WORDS), max(len(spoken), LEAST_WORDS))
        self._known = frozenset(spoken)
        last = len(spoken) - self._words
        self._sequences = frozenset(spoken[i : i + self._words] for i in range(last + 1))

    @property
    def reach(self) -> int:
        return self._words * (WORD + GAP)

    def find(self, text: str) -> Sequence[Finding]:
        if not self._sequences:
            return ()
        return [finding for run in self._runs(text) for finding in self._pieces(run)]

    def _runs(self, text: str) -> Iterator[Sequence[Word]]:
        """Words of the prompt that follow each other, where they are enough for a sequence."""
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
        for first, last in self._spoken([word for _, _, word in run]):
            for begin in range(first, last, size):
                end = min(begin + size, last)
                yield Finding(run[begin][0], run[end - 1][1], "overlap")

    def _spoken(self, words: Sequence[str]) -> Sequence[tuple[int, int]]:
        """Which of the words are in sequences of the prompt: from, and up to."""
        spans: list[tuple[int, int]] = []
        for first in range(len(words) - self._words + 1):
            last = first + self._words
            if tuple(words[first:last]) not in self._sequences:
                continue
            if spans and first <= spans[-1][1]:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
        return spans


def _words(text: str) -> Iterator[Word]:
    plain = text.isascii()
    for word in WORD_PATTERN.finditer(text):
        spoken = word[0] if plain else unicodedata.normalize("NFKC", word[0])
        yield *word.span(), spoken.casefold()
