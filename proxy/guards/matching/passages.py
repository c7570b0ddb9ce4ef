"""Finds passages of known texts in other texts, as sequences of words.

Case, punctuation and layout may differ. Translations, paraphrases and encodings are not found. A
stream withholds the last words while they are consecutive in a known text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from proxy.guards.matching.re2set import encode
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
        known_words: set[str] = set()
        sequences: set[int] = set()
        pairs: set[int] = set()
        for text in texts:
            text_words = tuple(compared_words(text))
            known_words.update(text_words)
            sequences.update(grams(text_words, words))
            pairs.update(grams(text_words, 2))
        self._known = frozenset(known_words)
        self._sequences = frozenset(sequences)
        self._pairs = frozenset(pairs)
        self._ordered = sorted(word for word in known_words if not word.isascii())

    @property
    def lookback(self) -> int:
        return self._words * (WORD + GAP)

    @property
    def hold(self) -> PartialMatcher:
        return self

    def is_open(self, data: bytes) -> bool:
        text = data.decode()
        text_words = WORD_PATTERN.findall(text.lower()) if text.isascii() else ()
        if text_words and len(text_words) < self._words and text_words[-1] not in self._known:
            return False  # as at most places
        return self.is_open_at(text)

    def is_open_at(self, text: str) -> bool:
        return self.begins(text, 0) < len(text) or bool(self.find(text))

    def is_found(self, data: bytes) -> bool:
        return bool(self.find(data.decode()))

    def encoded(self, text: str) -> bytes:
        return encode(text)

    def begins(self, text: str, since: int) -> int:
        """Return the start of the last words that may become or continue a sequence."""
        words = [word for word in _words(text) if word[1] > since]
        if not words or len(text) - words[-1][1] > GAP:
            return len(text)
        is_cut = words[-1][1] == len(text)
        if is_cut and self._ordered and text.isalnum():
            return since  # the start of the word is unknown
        if not (self._starts_known_word(words[-1][2]) if is_cut else words[-1][2] in self._known):
            return len(text)
        last_complete = len(words) - 1 - is_cut
        first_index = len(words) - 1
        while first_index and self._follows(
            words[first_index - 1], words[first_index], is_complete=first_index <= last_complete
        ):
            first_index -= 1
        tail_words = tuple(word for _, _, word in words[first_index : last_complete + 1])
        complete = (
            index
            for index, gram in enumerate(grams(tail_words, self._words))
            if gram in self._sequences
        )
        incomplete = max(0, len(tail_words) - self._words + 1)  # a longer sequence is complete
        return max(since, words[first_index + min(next(complete, incomplete), incomplete)][0])

    def _follows(self, previous: Word, word: Word, *, is_complete: bool) -> bool:
        """Return True if two words may be consecutive. If ``is_complete`` is False, the second
        word is cut."""
        if previous[2] not in self._known or word[0] - previous[1] > GAP:
            return False
        return not is_complete or hash((previous[2], word[2])) in self._pairs

    def _starts_known_word(self, word: str) -> bool:
        index = bisect_left(self._ordered, word)
        return index < len(self._ordered) and self._ordered[index].startswith(word)

    def find(self, text: str) -> Sequence[Finding]:
        if not self._sequences:
            return ()
        return [finding for run in self._runs(text) for finding in self._pieces(run)]

    def share(self, text: str) -> tuple[float, int]:
        """Return the share of known sequences in a text, and the number of all sequences."""
        sequences = grams(tuple(compared_words(text)), self._words)
        known_count = sum(gram in self._sequences for gram in sequences)
        return (known_count / len(sequences) if sequences else 0.0), len(sequences)

    def _runs(self, text: str) -> Iterator[Sequence[Word]]:
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
        for span_start, span_end in self._known_spans(tuple(word for _, _, word in run)):
            for begin in range(span_start, span_end, size):
                end = min(begin + size, span_end)
                yield Finding(run[begin][0], run[end - 1][1], "overlap")

    def _known_spans(self, words: tuple[str, ...]) -> Sequence[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for start, gram in enumerate(grams(words, self._words)):
            if gram not in self._sequences:
                continue
            end = start + self._words
            if spans and start < spans[-1][1]:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        return spans


def grams(words: tuple[str, ...], size: int) -> list[int]:
    """Return a hash for each sequence of ``size`` words."""
    return [hash(words[i : i + size]) for i in range(len(words) - size + 1)]


def compared_words(text: str) -> Iterator[str]:
    """Return the normalized words of a text."""
    return (word for _, _, word in _words(text))


def _words(text: str) -> Iterator[Word]:
    is_ascii = text.isascii()
    for word in WORD_PATTERN.finditer(text):
        form = word[0] if is_ascii else unicodedata.normalize("NFKC", word[0])
        yield *word.span(), form.casefold()
