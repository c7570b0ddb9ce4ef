"""The `code` guard: finds fenced blocks and lines that are typical of a programming language.

It does not find obfuscated code, or unfenced code without a typical line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from proxy.config.scalars import Section
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching.partial_match import Shape, Shapes
from proxy.guards.matching.patterns import resolve_overlaps
from proxy.guards.matching.re2set import CharacterOffsets, Pattern, build_prefilter, encode_utf8
from proxy.types.guard import Finding

LOOKBACK = 2000
OTHER_KIND = "code"

_LANGUAGES = tomllib.loads((Path(__file__).parent / "data" / "code.toml").read_text("utf-8"))
CUES: dict[str, list[str]] = {kind: language["cues"] for kind, language in _LANGUAGES.items()}
PROSE = frozenset({"text", "txt", "plain", "plaintext", "md", "markdown"})
KINDS = {name: kind for kind, language in _LANGUAGES.items() for name in language["names"].split()}
FENCE = r"(?m)^[ \t>*-]{0,8}(\x60{3,20}|~{3,20})[ \t]{0,4}([\w+#.-]{0,20})[^\n\x60]{0,200}(?:\n|\z)"
# A fence without a language may also close a block, depending on the rest of its line.
ENDS = r"[ \t]*(?:\n|\z)"


class Code:
    """Detector of code. The kind of a finding is a language of `data/code.toml`, or ``code``.

    A block extends to its closing fence, or to the lookback. Single lines score 0.6, blocks 1.
    """

    __slots__ = (
        "_closes",
        "_cues",
        "_ends",
        "_fence",
        "_pattern_set",
        "partial_matcher",
        "prefilter",
    )

    kinds = frozenset({*CUES, OTHER_KIND})

    def __init__(self) -> None:
        cues = [f"(?m){'|'.join(cues)}" for cues in CUES.values()]
        self.partial_matcher = Shapes(
            [Shape(FENCE), *map(Shape, cues)], open_parts={0: self._find_unclosed_block}
        )
        self._pattern_set = self.partial_matcher.pattern_set
        self.prefilter = build_prefilter([self._pattern_set])
        self._fence, self._ends = Pattern(FENCE), Pattern(ENDS)
        self._cues = [*zip(CUES, map(Pattern, cues), strict=True)]
        self._closes = {
            mark: Pattern(rf"(?m)^[ \t>*-]{{0,8}}{mark}{{3,20}}[ \t]*(?:\n|\z)") for mark in "`~"
        }

    lookback = LOOKBACK

    def find(self, text: str) -> Sequence[Finding]:
        data = encode_utf8(text)
        hits = self._pattern_set.find_matching(data)
        if not hits:
            return ()
        blocks = list(self._find_fenced_blocks(data)) if hits[0] == 0 else []
        lines = [
            (*spans[0], kind, 0.6)
            for hit in hits
            if hit
            for kind, pattern in self._cues[hit - 1 : hit]
            for spans in pattern.find_all(data)
        ]
        characters = CharacterOffsets(text, data)
        return resolve_overlaps(characters.to_finding(*place) for place in sorted(blocks + lines))

    def _find_fenced_blocks(self, data: bytes) -> Iterator[Place]:
        end = 0
        while opened := self._fence.search(data, end):
            (start, end), mark, word = opened
            language = data[slice(*word)].decode().casefold()
            if not language and self._ends.match(data[end : end + LOOKBACK]):
                continue
            closing = self._closes[chr(data[mark[0]])].search(
                data, end, min(start + LOOKBACK, len(data))
            )
            end = closing[0][1] if closing else min(start + LOOKBACK, len(data))
            if language not in PROSE:
                yield start, end, KINDS.get(language, OTHER_KIND), 1.0

    def _find_unclosed_block(self, data: bytes, start: int) -> int:
        while opened := self._fence.search(data, start):
            (begin, start), mark, word = opened
            if word[0] == word[1] and (ends := self._ends.match(data[start:])):
                if data[start : start + ends[1]].endswith(b"\n"):
                    continue
                return begin
            limit = begin + LOOKBACK
            closing = self._closes[chr(data[mark[0]])].search(data, start, min(limit, len(data)))
            start = closing[0][1] if closing else limit
            closed = closing is not None and data[start - 1 : start] == b"\n"
            if not closed and limit > len(data):
                return begin
        return len(data)


Place = tuple[int, int, str, float]


class CodeConfig(Section):
    """Program code."""


KIND = GuardKind(CodeConfig, lambda keys, context: Code())
