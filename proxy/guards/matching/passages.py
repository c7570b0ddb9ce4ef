"""Finds passages of known texts in other texts, as sequences of words.

Case, punctuation and layout may differ. Translations, paraphrases and encodings are not found. A
stream withholds the last words while they are consecutive in a known text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from proxy.guards.matching.re2set import encoded
from proxy.types.guard import Finding
from proxy.types.hold import PartialMatcher

# Longer words are cut, and a longer gap ends a sequence, so that its length is bounded.
WORD, GAP = 32, 16
WORD_PATTERN = re.compile(rf"[^\W_]{{1,{WORD}}}")

Word = tuple[int, int, str]


class Passages:
    """Detector and partial matcher of sequences with ``words`` words of known texts.

    Longer passages are split. It stores the words, and a hash of each sequence and each pair of
    words: about 200 bytes per word.
    """

    __slots__ = ("_known", "_ordered", "_pairs", "_sequences", "_words")

    has_words = True

    def __init__(self, texts: Sequence[str], words: int) -> None:
        self._words = words
        known: set[str] = set()
        sequences: set[int] = set()
        pairs: set[int] = set()
        for text in texts:
            spoken = tuple(compared_words(text))
            known.update(spoken)
            sequences.update(grams(spoken, words))
            pairs.update(grams(spoken, 2))
        self._known = frozenset(known)
        self._sequences = frozenset(sequences)
        self._pairs = frozenset(pairs)
        self._ordered = sorted(each for each in known if not each.isascii())

    @property
    def lookback(self) -> int:
        return self._words * (WORD + GAP)

    @property
    def hold(self) -> PartialMatcher:
        return self

    def is_open(self, data: bytes) -> bool:
        text = data.decode()
        spoken = WORD_PATTERN.findall(text.lower()) if text.isascii() else ()
        if spoken and len(spoken) < self._words and spoken[-1] not in self._known:
            return False  # as at most places
        return self.is_open_at(text)

    def is_open_at(self, text: str) -> bool:
        return self.begins(text, 0) < len(text) or bool(self.find(text))

    def is_found(self, data: bytes) -> bool:
        return bool(self.find(data.decode()))

    def encoded(self, text: str) -> bytes:
        return encoded(text)

    def begins(self, text: str, since: int) -> int:
        """Return the start of the last words that may become or continue a sequence."""
        words = [word for word in _words(text) if word[1] > since]
        if not words or len(text) - words[-1][1] > GAP:
            return len(text)
        is_cut = words[-1][1] == len(text)
        if is_cut and self._ordered and text.isalnum():
            return since  # the start of the word is unknown
        if not (self._is_begun(words[-1][2]) if is_cut else words[-1][2] in self._known):
            return len(text)
        last = len(words) - 1 - is_cut
        first = len(words) - 1
        while first and self._follows(words[first - 1], words[first], paired=first <= last):
            first -= 1
        spoken = tuple(word for _, _, word in words[first : last + 1])
        known = (
            index
            for index, gram in enumerate(grams(spoken, self._words))
            if gram in self._sequences
        )
        begun = max(0, len(spoken) - self._words + 1)  # a longer sequence is complete
        return max(since, words[first + min(next(known, begun), begun)][0])

    def _follows(self, before: Word, word: Word, *, paired: bool) -> bool:
        """Return True if two words may be consecutive in a sequence. With ``paired``, both are
        complete."""
        if before[2] not in self._known or word[0] - before[1] > GAP:
            return False
        return not paired or hash((before[2], word[2])) in self._pairs

    def _is_begun(self, word: str) -> bool:
        """Return True if a known word with characters beyond ASCII starts with ``word``."""
        at = bisect_left(self._ordered, word)
        return at < len(self._ordered) and self._ordered[at].startswith(word)

    def find(self, text: str) -> Sequence[Finding]:
        if not self._sequences:
            return ()
        return [finding for run in self._runs(text) for finding in self._pieces(run)]

    def share(self, text: str) -> tuple[float, int]:
        """Return the share of known sequences in a text, and the number of all sequences."""
        all_of_it = grams(tuple(compared_words(text)), self._words)
        known = sum(each in self._sequences for each in all_of_it)
        return (known / len(all_of_it) if all_of_it else 0.0), len(all_of_it)

    def _runs(self, text: str) -> Iterator[Sequence[Word]]:
        """Yield runs of known words that are long enough for a sequence."""
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
        """Return the spans of words that belong to known sequences."""
        spans: list[tuple[int, int]] = []
        for first, gram in enumerate(grams(words, self._words)):
            if gram not in self._sequences:
                continue
            last = first + self._words
            if spans and first < spans[-1][1]:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
        return spans


def grams(words: tuple[str, ...], size: int) -> list[int]:
    """Return a hash for each sequence of ``size`` words."""
    return [hash(words[i : i + size]) for i in range(len(words) - size + 1)]


def compared_words(text: str) -> Iterator[str]:
    """Return the normalized words of a text."""
    return (word for _, _, word in _words(text))


def _words(text: str) -> Iterator[Word]:
    plain = text.isascii()
    for word in WORD_PATTERN.finditer(text):
        spoken = word[0] if plain else unicodedata.normalize("NFKC", word[0])
        yield *word.span(), spoken.casefold()
