"""The `sponge` guard: finds texts with extreme repetition, which waste processing time.

Tables, logs and generated data rarely repeat this much. Random text does not repeat and is not
found.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from proxy.config.scalars import Section
from proxy.dialects.findings import flag_details
from proxy.guards.guard_kind import GuardKind
from proxy.runtime.frozen import frozen
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding

RUN = re.compile(r"(\S)\1{15,}+")  # possessive: no character is tried twice
WORD = re.compile(r"\w+")
WORD_REST = re.compile(r"\w*")
SLICE_LENGTH = 64 * 1024  # characters


def slices(text: str, size: int = SLICE_LENGTH) -> Iterator[str]:
    """Yield slices of a text, so that no call into C holds the GIL for long. A word is cut only
    if it is longer than a slice."""
    start = 0
    while start < len(text):
        end = start + size
        tail = WORD_REST.match(text, end, end + size)
        end = tail.end() if tail is not None else end
        yield text[start:end]
        start = end


@frozen
class Sponge:
    """Detector of runs of one character, and of texts whose words or bytes repeat.

    ``run`` is the minimum length of a run. ``share`` is the minimum share of the words in
    repetitions of one sequence of ``words`` words. ``ratio`` is the minimum compression ratio of a
    normal text. Texts shorter than ``min_length`` characters are checked for runs only.
    """

    run: int = 500
    words: int = 3
    share: float = 0.7
    ratio: float = 0.06
    least: int = 1000

    lookback = None

    def find(self, text: str) -> Sequence[Finding]:
        if len(text) >= self.least:
            if self._repeats(text):
                return (Finding(0, len(text), "repetition"),)
            data = text.encode("utf-8", "replace")
            if len(zlib.compress(data, 1)) < self.ratio * len(data):
                return (Finding(0, len(text), "compression"),)
        return [
            Finding(match.start(), match.end(), "run")
            for match in RUN.finditer(text)
            if match.end() - match.start() >= self.run
        ]

    def _repeats(self, text: str) -> bool:
        counts: Counter[tuple[str, ...]] = Counter()
        word_count = 0
        carried: list[str] = []
        for piece in slices(text):
            piece_words = WORD.findall(piece.casefold())
            word_count += len(piece_words)
            row = carried + piece_words
            counts.update(zip(*(row[i:] for i in range(self.words)), strict=False))
            carried = row[len(row) - self.words + 1 :] if self.words > 1 else []
        if word_count < 10 * self.words:
            return False
        highest = 0
        for count in counts.values():  # ``max`` would hold the GIL for millions
            highest = count if count > highest else highest
        # A rotating sequence counts once for each of its words.
        return highest * self.words >= self.share * word_count


class SpongeConfig(Section):
    """Texts with long repetitions, which waste processing time."""


KIND = GuardKind(
    SpongeConfig,
    lambda keys, context: Sponge(),
    detections=(
        DetectionFormat("sponge_attack", "sponge_attack", flag_details("sponge_attack_detected")),
    ),
)
