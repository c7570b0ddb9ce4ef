"""The `code` guard: finds fenced blocks and lines that are typical of a programming language.

It does not find obfuscated code, or unfenced code without a typical line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from proxy.config.scalars import Section
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching.partial_match import StreamPattern, StreamPatternMatcher
from proxy.guards.matching.patterns import trim_overlaps
from proxy.guards.matching.re2set import CharacterOffsets, Pattern, encode_utf8
from proxy.types.guard import Finding

LOOKBACK = 2000
UNKNOWN_LANGUAGE = "code"

_LANGUAGES = tomllib.loads((Path(__file__).parent / "data" / "code.toml").read_text("utf-8"))
LINE_PATTERNS: dict[str, list[str]] = {kind: item["cues"] for kind, item in _LANGUAGES.items()}
PROSE_LANGUAGES = frozenset({"text", "txt", "plain", "plaintext", "md", "markdown"})
LANGUAGE_BY_NAME = {n: kind for kind, item in _LANGUAGES.items() for n in item["names"].split()}
FENCE_PATTERN = (
    r"(?m)^[ \t>*-]{0,8}(\x60{3,20}|~{3,20})[ \t]{0,4}([\w+#.-]{0,20})[^\n\x60]{0,200}(?:\n|\z)"
)
# A fence without a language closes a block if a blank line follows.
BLANK_LINE = r"[ \t]*(?:\n|\z)"
FENCE_INDEX = len(LINE_PATTERNS)  # index of the pattern of fences, behind those of the languages


class _FencedBlock(NamedTuple):
    start: int
    end: int
    language: str
    may_change: bool


class Code:
    """Detector of code. The kind of a finding is a language of `data/code.toml`, or ``code``.

    A block ends at its closing fence, or after 2,000 bytes. Single lines score 0.6, blocks 1.
    """

    kinds = frozenset({*LINE_PATTERNS, UNKNOWN_LANGUAGE})
    lookback = LOOKBACK

    def __init__(self) -> None:
        cues = [f"(?m){'|'.join(cues)}" for cues in LINE_PATTERNS.values()]
        self._kinds = [*LINE_PATTERNS, UNKNOWN_LANGUAGE]
        self.partial_matcher = StreamPatternMatcher(
            [
                StreamPattern(pattern, compiled=Pattern(pattern))
                for pattern in (*cues, FENCE_PATTERN)
            ],
            partial_finders={FENCE_INDEX: self._find_unclosed_block},
        )
        self.prefilter = self.partial_matcher.prefilter
        self._fence, self._blank_line = Pattern(FENCE_PATTERN), Pattern(BLANK_LINE)
        closing = r"(?m)^[ \t>*-]{0,8}MARK{3,20}[ \t]*(?:\n|\z)"
        self._closing_by_mark = {mark: Pattern(closing.replace("MARK", mark)) for mark in "`~"}

    def find(self, text: str) -> Sequence[Finding]:
        data = encode_utf8(text)
        matches = [
            (*spans[0], self._kinds[index], 0.6)
            for index, spans in self.partial_matcher.find_all(data)
            if index != FENCE_INDEX
        ]
        if b"```" in data or b"~~~" in data:
            matches += [
                (start, end, LANGUAGE_BY_NAME.get(language, UNKNOWN_LANGUAGE), 1.0)
                for start, end, language, _ in self._iter_fenced_blocks(data, 0)
                if language not in PROSE_LANGUAGES
            ]
        characters = CharacterOffsets(text, data)
        return trim_overlaps(characters.to_finding(*match) for match in sorted(matches))

    def _iter_fenced_blocks(self, data: bytes, start: int) -> Iterator[_FencedBlock]:
        """Yield each block. If it ``may_change``, later text may close it."""
        end = start
        while opened := self._fence.search(data, end):
            (start, end), mark, word = opened
            language = data[slice(*word)].decode().casefold()
            if not language and (blank := self._blank_line.match(data[end : end + LOOKBACK])):
                if not data[end : end + blank[1]].endswith(b"\n"):
                    yield _FencedBlock(start, end, "text", may_change=True)
                continue
            limit = start + LOOKBACK
            pattern = self._closing_by_mark[chr(data[mark[0]])]
            closing = pattern.search(data, end, min(limit, len(data)))
            end = closing[0][1] if closing else min(limit, len(data))
            is_closed = closing is not None and data[end - 1 : end] == b"\n"
            yield _FencedBlock(start, end, language, may_change=not is_closed and limit > len(data))

    def _find_unclosed_block(self, data: bytes, start: int) -> int:
        blocks = self._iter_fenced_blocks(data, start)
        return next((block.start for block in blocks if block.may_change), len(data))


class CodeConfig(Section):
    """Program code."""


KIND = GuardKind(CodeConfig, lambda keys, context: Code())
