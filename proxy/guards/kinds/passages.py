"""The `system_prompt` and `copyright` guards: find passages of known texts in other texts.

A passage is a sequence of words. Case, punctuation and layout may differ. Translations, paraphrases
and encodings are not found. A stream withholds the last words while they are consecutive in a known
text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field, StringConstraints

from proxy.config.scalars import FileName, RefersTo, Section, Share
from proxy.dialects.findings import build_similarity_details
from proxy.guards.guard_kind import GuardKind, PromptDetectorFactory
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding
from proxy.types.partial_matcher import PartialMatcher

# Longer words are cut, and a longer gap ends a sequence, so that its length is bounded.
MAX_WORD_CHARS, MAX_GAP_CHARS = 32, 16
WORD_PATTERN = re.compile(rf"[^\W_]{{1,{MAX_WORD_CHARS}}}")

# Guard `system_prompt`
LEAK_WORDS, MIN_PROMPT_WORDS = 12, 5
MAX_PROMPT_CHARS = 32 * 1024  # characters of a prompt that are compared, about 7 ms
MAX_CACHED_PROMPTS = 16  # most calls of a deployment have the same prompt
# Guard `copyright`
SHARE_WORDS = 5  # words per sequence for the share of a response
MIN_SHARE_SEQUENCES = 20  # minimum sequences of a response for its share
MAX_KNOWN_CHARS = 1024 * 1024  # characters of all known texts together

Word = tuple[int, int, str]
"""Start, end and normalized form of a word."""


class PassageDetector:
    """Detector and partial matcher of ``words`` consecutive words of known texts.

    Longer passages are split. The detector stores the words, and a hash of each sequence and each
    pair of words: about 200 bytes per word.
    """

    def __init__(self, texts: Sequence[str], words: int) -> None:
        self._words = words
        self._known: set[str] = set()
        self._sequences: set[int] = set()
        self._pairs: set[int] = set()
        for text_words in map(normalize_words, texts):
            self._known.update(text_words)
            self._sequences.update(hash_word_sequences(text_words, words))
            self._pairs.update(hash_word_sequences(text_words, 2))
        self._sorted_words = sorted(word for word in self._known if not word.isascii())
        self.lookback = words * (MAX_WORD_CHARS + MAX_GAP_CHARS)

    @property
    def partial_matcher(self) -> PartialMatcher:
        return self

    def ends_in_partial_match(self, data: bytes) -> bool:
        text = data.decode()
        text_words = WORD_PATTERN.findall(text.lower()) if text.isascii() else ()
        if text_words and len(text_words) < self._words and text_words[-1] not in self._known:
            return False  # the usual case
        return self.may_end_in_partial_match(text)

    def may_end_in_partial_match(self, text: str) -> bool:
        return self.find_partial_match(text, 0) < len(text) or self.may_contain_match(text)

    def may_contain_match(self, text: str) -> bool:
        return bool(self.find(text))

    def find_partial_match(self, text: str, start: int) -> int:
        words = [word for word in _iter_words(text) if word[1] > start]
        if not words or len(text) - words[-1][1] > MAX_GAP_CHARS:
            return len(text)
        is_cut = words[-1][1] == len(text)
        if is_cut and self._sorted_words and text.isalnum():
            return start  # the start of the word is unknown
        if not (self._starts_known_word(words[-1][2]) if is_cut else words[-1][2] in self._known):
            return len(text)
        last_complete = len(words) - 1 - is_cut
        first_index = len(words) - 1
        while first_index and self._may_be_consecutive(
            words[first_index - 1], words[first_index], is_complete=first_index <= last_complete
        ):
            first_index -= 1
        tail_words = tuple(word for _, _, word in words[first_index : last_complete + 1])
        incomplete = max(0, len(tail_words) - self._words + 1)  # a longer sequence is complete
        hashes = enumerate(hash_word_sequences(tail_words, self._words))
        index = next((index for index, value in hashes if value in self._sequences), incomplete)
        return max(start, words[first_index + min(index, incomplete)][0])

    def _may_be_consecutive(self, previous: Word, word: Word, *, is_complete: bool) -> bool:
        """Return True if two words may be consecutive; the second is cut unless ``is_complete``."""
        if previous[2] not in self._known or word[0] - previous[1] > MAX_GAP_CHARS:
            return False
        return not is_complete or hash((previous[2], word[2])) in self._pairs

    def _starts_known_word(self, word: str) -> bool:
        index = bisect_left(self._sorted_words, word)
        return index < len(self._sorted_words) and self._sorted_words[index].startswith(word)

    def find(self, text: str) -> Sequence[Finding]:
        if not self._sequences:
            return ()
        size, findings = self._words, []
        for run in self._find_known_word_runs(text):
            for span_start, span_end in self._find_known_spans(run):
                for begin in range(span_start, span_end, size):
                    end = min(begin + size, span_end)
                    findings.append(Finding(run[begin][0], run[end - 1][1], "overlap"))
        return findings

    def measure_sequence_share(self, text: str) -> tuple[float, int]:
        """Return the share of known sequences in a text, and the number of all sequences."""
        hashes = hash_word_sequences(normalize_words(text), self._words)
        known_count = sum(value in self._sequences for value in hashes)
        return (known_count / len(hashes) if hashes else 0.0), len(hashes)

    def _find_known_word_runs(self, text: str) -> Iterator[Sequence[Word]]:
        run: list[Word] = []
        for word in _iter_words(text):
            if word[2] in self._known and (not run or word[0] - run[-1][1] <= MAX_GAP_CHARS):
                run.append(word)
                continue
            if len(run) >= self._words:
                yield run
            run = [word] if word[2] in self._known else []
        if len(run) >= self._words:
            yield run

    def _find_known_spans(self, run: Sequence[Word]) -> Sequence[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        hashes = hash_word_sequences(tuple(word for _, _, word in run), self._words)
        for start, value in enumerate(hashes):
            if value in self._sequences:
                end = start + self._words
                if spans and start < spans[-1][1]:
                    spans[-1] = (spans[-1][0], end)
                else:
                    spans.append((start, end))
        return spans


def hash_word_sequences(words: tuple[str, ...], size: int) -> list[int]:
    return [hash(words[i : i + size]) for i in range(len(words) - size + 1)]


def normalize_words(text: str) -> tuple[str, ...]:
    return tuple(word for _, _, word in _iter_words(text))


def _iter_words(text: str) -> Iterator[Word]:
    is_ascii = text.isascii()
    for word in WORD_PATTERN.finditer(text):
        form = word[0] if is_ascii else unicodedata.normalize("NFKC", word[0])
        yield *word.span(), form.casefold()


def build_system_prompt_factory(words: int = LEAK_WORDS) -> PromptDetectorFactory[PassageDetector]:
    """Return a factory of detectors for ``words`` consecutive words of the system prompt.

    A shorter prompt is found if it is repeated completely. Prompts of fewer than 5 words are
    ignored.
    """

    @lru_cache(maxsize=MAX_CACHED_PROMPTS)
    def build_passages(prompt: str) -> PassageDetector | None:
        count = len(normalize_words(prompt))
        return PassageDetector([prompt], min(words, count)) if count >= MIN_PROMPT_WORDS else None

    lookback = words * (MAX_WORD_CHARS + MAX_GAP_CHARS)
    return PromptDetectorFactory(
        lambda prompt: build_passages(prompt.system[:MAX_PROMPT_CHARS]), lookback
    )


class SystemPromptConfig(Section):
    """The system prompt of the call, repeated word by word in the response."""

    words: Annotated[int, Field(ge=5, le=100)] = LEAK_WORDS
    """Number of consecutive words that count as a leak. A shorter prompt counts if it is repeated
    completely."""


SYSTEM_PROMPT_GUARD = GuardKind(
    SystemPromptConfig,
    lambda keys, context: build_system_prompt_factory(keys.words),
    is_output_only=True,
    detections=(
        DetectionFormat("system_prompt", "system_prompt_similarity", build_similarity_details),
    ),
)


class Copyright:
    """Detector of passages with ``words`` consecutive known words.

    A response is also found if its share of known five-word sequences is at least ``share``. If
    ``share`` is None, streams are not held to their end.

    Raises ``ValueError`` without texts, if all texts together are too long, or if a text is shorter
    than a passage.
    """

    def __init__(self, texts: Sequence[str], words: int, share: float | None) -> None:
        if not texts:
            raise ValueError("must have texts or texts_from")
        if sum(map(len, texts)) > MAX_KNOWN_CHARS:
            raise ValueError(f"texts must have at most {MAX_KNOWN_CHARS} characters together")
        for number, text in enumerate(texts, 1):
            if len(normalize_words(text)) < words:
                raise ValueError(f"text {number} must have at least {words} words")
        self._passages, self._share = PassageDetector(texts, words), share
        self._sequences = PassageDetector(texts if share is not None else (), SHARE_WORDS)
        # A share needs the whole text.
        self.lookback = self._passages.lookback if share is None else None
        self.partial_matcher = self._passages.partial_matcher if share is None else None

    def find(self, text: str) -> Sequence[Finding]:
        if self._share is not None:
            share, count = self._sequences.measure_sequence_share(text)
            if count >= MIN_SHARE_SEQUENCES and share >= self._share:
                return (Finding(start=0, end=len(text), kind="similar", score=round(share, 3)),)
        return [Finding(f.start, f.end, "passage") for f in self._passages.find(text)]


class CopyrightConfig(Section):
    """Passages of protected texts, and responses that consist mostly of such passages."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because quotations may be lawful."""
    texts: list[Annotated[str, StringConstraints(min_length=1)]] = Field(default_factory=list)
    """Protected texts."""
    texts_from: Annotated[list[FileName], RefersTo("text")] = Field(default_factory=list)
    """Files with protected texts, in the policy folder."""
    words: Annotated[int, Field(ge=5, le=100)] = 20
    """Minimum number of consecutive words of a passage."""
    share: Share | None = 0.5
    """Maximum share of a response that may consist of five-word sequences of the texts. With null
    only passages are found, and streams are not delayed to their end."""


COPYRIGHT_GUARD = GuardKind(
    CopyrightConfig,
    lambda keys, context: Copyright(
        [*keys.texts, *(context.texts[name] for name in keys.texts_from)], keys.words, keys.share
    ),
    detections=(
        DetectionFormat("copyright_ip", "copyright_ip_similarity", build_similarity_details),
    ),
    example={"texts": ["word " * 20]},
)
