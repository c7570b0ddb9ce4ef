"""Sponges: texts that cost much and say little, as they say the same again and again.

Tables, logs and generated data repeat as well, though seldom this much; what is drawn at random
does not repeat, and is not found.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

from proxy.config.scalars import Section
from proxy.dialects.detections import yes
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import GuardKind
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding

# Possessive, so that no character is tried twice for one beginning.
SAME = re.compile(r"(\S)\1{15,}+")


WORD = re.compile(r"\w+")
REST = re.compile(r"\w*")
SLICE = 64 * 1024  # characters


def slices(text: str, size: int = SLICE) -> Iterator[str]:
    """Return a text in slices, so that no call into C holds up other threads for long. Only a word
    that is itself as long as a slice is cut."""
    at = 0
    while at < len(text):
        end = at + size
        rest = REST.match(text, end, end + size)
        end = rest.end() if rest is not None else end
        yield text[at:end]
        at = end


@frozen
class Sponge:
    """Finds runs of one character, or the whole text where its words or its bytes repeat.

    ``run`` counts characters; ``share`` is how much of the text may be one sequence of ``words``
    words; ``ratio`` is the least size of the compressed text for its size. Texts below ``least``
    characters are searched for runs alone.
    """

    run: int = 500
    words: int = 3
    share: float = 0.7
    ratio: float = 0.06
    least: int = 1000

    @property
    def reach(self) -> None:
        return None

    def find(self, text: str) -> Sequence[Finding]:
        if len(text) >= self.least:
            if self._repeats(text):
                return (Finding(0, len(text), "repetition"),)
            if self._shrinks(text):
                return (Finding(0, len(text), "compression"),)
        return [
            Finding(same.start(), same.end(), "run")
            for same in SAME.finditer(text)
            if same.end() - same.start() >= self.run
        ]

    def _repeats(self, text: str) -> bool:
        counts: Counter[tuple[str, ...]] = Counter()
        words = 0
        before: list[str] = []
        for piece in slices(text):
            found = WORD.findall(piece.casefold())
            words += len(found)
            row = before + found
            counts.update(zip(*(row[i:] for i in range(self.words)), strict=False))
            before = row[len(row) - self.words + 1 :] if self.words > 1 else []
        if words < 10 * self.words:
            return False
        often = 0
        for count in counts.values():  # not ``max``, which would look at millions in one go
            often = count if count > often else often
        # A sequence that goes round is one of as many as it has words, each of them as frequent.
        return often * self.words >= self.share * words

    def _shrinks(self, text: str) -> bool:
        data = text.encode("utf-8", "replace")
        return len(zlib.compress(data, 1)) < self.ratio * len(data)


class SpongeConfig(Section):
    """Texts with long repetitions, which waste processing time."""


KIND = GuardKind(
    SpongeConfig,
    lambda keys, context: Sponge(),
    detections=(DetectionFormat("sponge_attack", "sponge_attack", yes("sponge_attack_detected")),),
)
