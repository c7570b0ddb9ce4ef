"""Code: fenced blocks, and lines that hardly anything but code has.

It looks for what is meant to be read as code. Code without a fence and without a telling line, or
indented only, is missed; so is code that its author hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.config.scalars import Section
from proxy.guardrails.guard_kind import GuardKind
from proxy.guardrails.matching.partial_match import Shape, Shapes
from proxy.guardrails.matching.re2set import Characters, Pattern, encoded, prefilter
from proxy.types.guard import Finding

REACH = 2000
OTHER = "code"

# The words after a fence, by the kind they stand for.
WORDS = {
    "c": "c h cpp c++ cxx cc hpp csharp cs c#",
    "go": "go golang",
    "html": "html htm xhtml svg xml vue",
    "java": "java kotlin kt scala groovy",
    "javascript": "javascript js jsx ts tsx typescript mjs node",
    "php": "php",
    "python": "python py python3 py3 ipython pycon",
    "ruby": "ruby rb",
    "rust": "rust rs",
    "shell": "shell sh bash zsh fish console powershell ps1 bat cmd",
    "sql": "sql mysql pgsql plsql postgresql sqlite tsql",
}
PROSE = frozenset({"text", "txt", "plain", "plaintext", "md", "markdown"})
KINDS = {word: kind for kind, words in WORDS.items() for word in words.split()}

FENCE = r"(?m)^[ \t>*-]{0,8}(\x60{3,20}|~{3,20})[ \t]{0,4}([\w+#.-]{0,20})[^\n\x60]{0,200}(?:\n|\z)"
# Without a word, the fence that closes a block looks like one that opens it; what follows tells.
ENDS = r"[ \t]*(?:\n|\z)"
CUES = {
    "c": (r"^[ \t]*#[ \t]?include[ \t]*[<\"]", r"^[ \t]*using namespace \w", r"\bint main\("),
    "go": (r"^package \w{1,40}[ \t]*$", r"^func (?:\(\w{1,40} [*\w.]{1,60}\) )?\w{1,60}\("),
    "html": (r"(?i:<!doctype html|<(?:script|style|iframe)(?:[ \t][^>\n]{0,200})?>)",),
    "java": (
        r"\bpublic (?:static |final |abstract ){0,3}(?:class|interface|void|int) [^.\n]{1,99}[{(]",
    ),
    "javascript": (
        r"^[ \t]*(?:export )?(?:const|let|var) [\w{}, $]{1,80} = ",
        r"\bfunction \w{0,60}\([\w, $]{0,100}\) ?\{",
        r"\) => \{|\bconsole\.log\(|\brequire\(['\"]",
    ),
    "php": (r"<\?php\b",),
    "python": (
        r"^[ \t]*(?:async )?def \w{1,80}\([^\n]{0,200}:[ \t]*(?:#[^\n]{0,100})?$",
        r"^from [\w.]{1,80} import \w",
        r"^import \w[\w.]{0,60}(?: as \w{1,40})?[ \t]*$",
        r"^if __name__ == ",
    ),
    "ruby": (r"^[ \t]*require ['\"][\w/.-]{1,80}['\"][ \t]*$", r"^[ \t]*puts ['\"]"),
    "rust": (
        r"^[ \t]*(?:pub )?fn \w{1,60}[<(]",
        r"\blet mut \w",
        r"\bimpl(?:<\w{1,20}>)? \w+ for \w",
    ),
    "shell": (
        r"^#!/\w",
        r"^[ \t]*(?:\$|sudo) (?:sudo|apt|cd|curl|docker|git|kubectl|npm|pip|python|rm|wget)\b",
    ),
    "sql": (
        r"\bSELECT\b[^;\n]{1,200}\bFROM\b",
        r"\b(?:CREATE|DROP|ALTER) TABLE \w",
        r"\b(?:INSERT INTO|DELETE FROM) \w|\bUPDATE \w{1,60} SET\b",
    ),
}


class Code:
    """Finds code; the kind is a language of ``WORDS``, else ``code``.

    A block ends at its closing fence, or after the reach. What a cue tells is less sure.
    """

    __slots__ = ("_closes", "_cues", "_ends", "_fence", "_sieve", "hold", "may_find")

    kinds = frozenset({*WORDS, OTHER})

    def __init__(self) -> None:
        cues = [f"(?m){'|'.join(cues)}" for cues in CUES.values()]
        self.hold = Shapes([Shape(FENCE), *map(Shape, cues)], opened={0: self._open_block})
        self._sieve = self.hold.found
        self.may_find = prefilter([self._sieve])
        self._fence, self._ends = Pattern(FENCE), Pattern(ENDS)
        self._cues = [*zip(CUES, map(Pattern, cues), strict=True)]
        self._closes = {
            mark: Pattern(rf"(?m)^[ \t>*-]{{0,8}}{mark}{{3,20}}[ \t]*(?:\n|\z)") for mark in "`~"
        }

    @property
    def reach(self) -> int:
        return REACH

    def find(self, text: str) -> Sequence[Finding]:
        data = encoded(text)
        hits = self._sieve.hits(data)
        if not hits:
            return ()
        blocks = list(self._blocks(data)) if hits[0] == 0 else []
        lines = [place for hit in hits if hit for place in self._telling(hit - 1, data)]
        characters = Characters(text, data)
        return [
            characters.finding(start, end, kind, score)
            for start, end, kind, score in _apart(blocks + lines)
        ]

    def _blocks(self, data: bytes) -> Iterator[Place]:
        end = 0
        while opened := self._fence.search(data, end):
            (start, end), mark, word = opened
            named = data[slice(*word)].decode().casefold()
            if not named and self._ends.match(data[end : end + REACH]):
                continue
            closing = self._closes[chr(data[mark[0]])].search(
                data, end, min(start + REACH, len(data))
            )
            end = closing[0][1] if closing else min(start + REACH, len(data))
            if named not in PROSE:
                yield start, end, KINDS.get(named, OTHER), 1.0

    def _open_block(self, data: bytes, start: int) -> int:
        """Return where a block begins whose end has not come."""
        while opened := self._fence.search(data, start):
            (begin, start), mark, word = opened
            if word[0] == word[1] and (ends := self._ends.match(data[start:])):
                if data[start : start + ends[1]].endswith(b"\n"):
                    continue
                return begin
            limit = begin + REACH
            closing = self._closes[chr(data[mark[0]])].search(data, start, min(limit, len(data)))
            start = closing[0][1] if closing else limit
            closed = closing is not None and data[start - 1 : start] == b"\n"
            if not closed and limit > len(data):
                return begin
        return len(data)

    def _telling(self, index: int, data: bytes) -> Iterator[Place]:
        kind, pattern = self._cues[index]
        for spans in pattern.every(data):
            yield *spans[0], kind, 0.6


Place = tuple[int, int, str, float]


def _apart(places: Sequence[Place]) -> list[Place]:
    """Those that do not begin within another, from the left."""
    kept: list[Place] = []
    for place in sorted(places, key=lambda each: (each[0], -each[3])):
        if not kept or place[0] >= kept[-1][1]:
            kept.append(place)
    return kept


class CodeConfig(Section):
    """Program code."""


KIND = GuardKind(CodeConfig, lambda keys, context: Code())
