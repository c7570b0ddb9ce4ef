"""A small logistic model of prompt injection: it adds weights of words, word pairs and letters.

`tools/train_injection.py` writes the weights, as a text: a reviewer can read what counts.
A text of any length is read once; each of its windows then costs the same, however long it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

from proxy.frozen import frozen

WINDOW = 120  # characters that are judged together: longer ones hide an attack among other words
SCALE = 32  # weights are whole 32nds in the file
FILE = Path(__file__).parent / "data" / "injection.tsv"

_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_RUN = re.compile(
    rf"[{_CJK}]|(?P<word>(?:(?![{_CJK}])[^\W\d_])+)|(?P<number>\d+)|(?P<signs>[^\w\s]+)|_+"
)
# Bounded tokens, so that no text makes one long; scripts without spaces give a token a letter.
_LONGEST = {"word": 24, "number": 6}
_LONGEST_SIGNS = 3
# Characters of a run that are read: where a token begins must not hang on what is so far before it
# that a stream may have let go of it.
_READ = 96
_GRAMS = (3, 4, 5)
_WORDS_KEPT = 4096


class Token(NamedTuple):
    """A word, a number or a run of signs, in small letters, and where it stands."""

    start: int
    end: int
    word: str


@frozen
class ScoredWindow:
    """A part of a text and the probability that it is an injection."""

    start: int
    end: int
    score: float


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text: of a run without a break those of its beginning."""
    found: list[Token] = []
    for run in _RUN.finditer(text):
        start, end = run.span()
        longest = _LONGEST.get(run.lastgroup or "", _LONGEST_SIGNS)
        if end - start <= longest:
            found.append(Token(start, end, _plain(run[0])))
            continue
        end = min(end, start + _READ)
        for at in range(start, end, longest):
            past = min(at + longest, end)
            found.append(Token(at, past, _plain(text[at:past])))
    return found


def _plain(word: str) -> str:
    return "0" if word.isdigit() else word.lower()


def grams(word: str) -> Iterator[str]:
    """Return the features of one word: the word itself, and its letter sequences.

    A number or a lone sign tells nothing: tables and formulas would be sums of them.
    """
    if not word[0].isalpha():
        if len(word) > 1 and not word[0].isdigit():
            yield word
        return
    yield word
    edged = f"<{word}>"
    for size in _GRAMS:
        for at in range(len(edged) - size + 1):
            yield "~" + edged[at : at + size]


def pair(left: str, right: str) -> str:
    return f"{left} {right}"


def features(words: Sequence[str]) -> Iterator[str]:
    """Return all features of a text, with repetitions. The trainer counts the same ones."""
    for word in words:
        yield from grams(word)
    for left, right in pairwise(words):
        if left[0].isalpha() or right[0].isalpha():
            yield pair(left, right)


def damped(total: float, words: int) -> float:
    """Make long windows comparable with short ones: a sum grows with length, its root less."""
    return total / math.sqrt(words + 4)


@frozen
class InjectionModel:
    """Weights by feature; ``slope`` and ``shift`` calibrate a window's sum to a probability."""

    weights: Mapping[str, float]
    bias: float
    slope: float
    shift: float
    _known: dict[str, float] = field(default_factory=dict, compare=False, repr=False)

    def windows(self, text: str, least: float = 0.0) -> list[ScoredWindow]:
        """Judge the window that begins at each word; return those of at least a probability.

        Takes time linear in the text.
        """
        found = tokens(text)
        starts, ends = [t.start for t in found], [t.end for t in found]
        single = [0.0, *accumulate(self._word(token.word) for token in found)]
        pairs = [0.0, *accumulate(self._pairs(found))]
        judged, last, count = [], 0, len(found)
        for first, start in enumerate(starts):
            while last < count and ends[last] <= start + WINDOW:
                last += 1
            total = single[last] - single[first] + pairs[last - 1] - pairs[first]
            score = self._probability(total, last - first)
            if score >= least:
                judged.append(ScoredWindow(start, ends[last - 1], score))
        return judged

    def score(self, words: Sequence[str]) -> float:
        """Return the sum for a text that is one window, before calibration."""
        total = sum(self.weights.get(feature, 0.0) for feature in features(words))
        return damped(total, len(words)) + self.bias

    def _pairs(self, found: Sequence[Token]) -> Iterator[float]:
        get = self.weights.get
        for left, right in pairwise(found):
            yield get(pair(left.word, right.word), 0.0)

    def _word(self, word: str) -> float:
        known = self._known.get(word)
        if known is None:
            get = self.weights.get
            known = sum(get(gram, 0.0) for gram in grams(word))
            if len(self._known) < _WORDS_KEPT:
                self._known[word] = known
        return known

    def _probability(self, total: float, words: int) -> float:
        exponent = self.slope * (damped(total, words) + self.bias) + self.shift
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, exponent))))


def read(path: Path) -> InjectionModel:
    """Read a file of weights: a line of calibration, then a whole number and a feature a line."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    bias, slope, shift = (float(part) for part in lines[0].split("\t"))
    weights = {}
    for line in lines[1:]:
        weight, features_ = line.split("\t", 1)
        for feature in features_.split("\t"):
            weights[feature] = int(weight) / SCALE
    return InjectionModel(weights=weights, bias=bias, slope=slope, shift=shift)


@lru_cache(maxsize=1)
def shipped() -> InjectionModel:
    """Return the model of the package. It is read once: every guard has the same."""
    return read(FILE)
