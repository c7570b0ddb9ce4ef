r"""Parses RE2 patterns into tokens or a tree, and derives cheaper patterns.

The parser of the standard library is private and has another syntax: RE2 supports ``\z``, ``\pL``
and ``\Q..\E``, and takes ``{,5}`` literally.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf

import re2

from proxy.runtime.frozen import frozen

UNSPACED_SCRIPTS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Inside of a character class: letters of scripts without spaces between words (Thai, Lao, Burmese,
Khmer, kana, Han), where every letter may end a word."""
UNSPACED_LETTER = re.compile(f"[{UNSPACED_SCRIPTS}]")
_LAST_UNSPACED = re.compile(f".*[{UNSPACED_SCRIPTS}]", re.DOTALL)
SPACE_CHARACTERS = " \n"

MAX_NESTING = 64
MAX_COUNT = 1000  # maximum count of a repeat in RE2
RELAXED_COUNT = 64  # maximum count of a repeat in a relaxed pattern
# Difference between the counts of a repeat up to which a relaxed pattern keeps both.
MAX_EXACT_RANGE = 8

PATTERN_TOKENS = re.compile(
    r"""
      \\Q(?P<quoted>.*?)(?:\\E|\Z)
    | (?P<flags>\(\?[imsU-]+\))
    | (?P<opens>\((?:\?(?:P?<\w+>|[imsU-]*:))?)
    | (?P<closes>\))
    | (?P<other>\|)
    | (?P<repeats>[*+?]|\{(?P<min>[0-9]+)(?P<comma>,(?P<max>[0-9]*))?\})\??
    | (?P<edge>\^|\$|\\[AzbB])
    | (?P<byte>\\C)
    | (?P<one>
        \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]
      | \\[pP](?:\{[^}]*\}|.)
      | \\x(?:\{[0-9A-Fa-f]+\}|..)
      | \\[0-7]{1,3}
      | \\.
      | .
      )
    """,
    re.VERBOSE | re.DOTALL,
)


def rfind_unspaced_script_letter(text: str, start: int, end: int) -> int:
    """Return the index of the last letter of a script without spaces in a span, or -1."""
    match = _LAST_UNSPACED.match(text, start, end)
    return -1 if match is None else match.end() - 1


def reject_deep_groups_and_bytes(pattern: str) -> None:
    r"""Raise ``ValueError`` for groups nested more than 64 deep and for ``\C``.

    ``\C`` matches a single byte.
    """
    depth = 0
    for token in PATTERN_TOKENS.finditer(pattern):
        if token["byte"]:
            raise ValueError("\\C is not supported, because it matches a byte")
        depth += (token.lastgroup == "opens") - (token.lastgroup == "closes")
        if depth > MAX_NESTING:
            raise ValueError(f"its groups are nested more than {MAX_NESTING} deep")


def relax_repetitions(pattern: str) -> str:
    """Return a pattern that compiles faster, and matches wherever ``pattern`` does or more.

    RE2 copies a repeated part for each count, so long repeats lose their upper bound.
    """
    return PATTERN_TOKENS.sub(_relax_repetition, pattern)


def _relax_repetition(token: re.Match[str]) -> str:
    if token["min"] is None:
        return token[0]
    min_count, max_count = int(token["min"]), int(token["max"] or 0)
    if max(min_count, max_count) > MAX_COUNT or (
        min_count <= RELAXED_COUNT and max_count <= MAX_EXACT_RANGE + min_count
    ):
        return token[0]
    return f"{{{min(min_count, RELAXED_COUNT)},}}"


@frozen
class Character:
    """One character, or a character class.

    ``can_be_space`` is True if it may be white space. ``unspaced_script_pattern`` matches its
    letters of scripts without spaces. It is None if there are none.
    """

    text: str
    can_be_space: bool
    unspaced_script_pattern: str | None

    def __str__(self) -> str:
        return self.text


@frozen
class Assertion:
    """A zero-width assertion, such as a word boundary."""

    text: str

    def __str__(self) -> str:
        return self.text


@frozen
class Concatenation:
    """Parts that match one after another."""

    parts: Sequence[Node]

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


@frozen
class Alternation:
    """Branches, of which one matches."""

    branches: Sequence[Node]

    def __str__(self) -> str:
        return f"(?:{'|'.join(map(str, self.branches))})"


@frozen
class Repeat:
    """A part that matches ``min_count`` to ``max_count`` times."""

    part: Node
    min_count: int
    max_count: float

    def __str__(self) -> str:
        return build_repeat_pattern(self.part, self.min_count, self.max_count)


Node = Character | Assertion | Concatenation | Alternation | Repeat


def parse_pattern(pattern: str, outer_flags: frozenset[str] = frozenset()) -> Node:
    """Return the tree of a pattern. Each character carries its flags, except ``outer_flags``."""
    groups = [_OpenGroup(outer_flags)]
    for token in PATTERN_TOKENS.finditer(pattern):
        group = groups[-1]
        match token.lastgroup:
            case "opens":
                groups.append(_OpenGroup(_apply_flags(group.flags, token[0])))
            case "closes":
                groups.pop()
                groups[-1].parts.append(group.to_node())
            case "other":
                group.branches.append(Concatenation(tuple(group.parts)))
                group.parts = []
            case "flags":
                group.flags = _apply_flags(group.flags, token[0])
            case "repeats":
                group.parts[-1] = _parse_repeat(group.parts[-1], token)
            case "edge":
                text = f"(?m:{token[0]})" if "m" in group.flags else token[0]
                group.parts.append(Assertion(text))
            case _:
                group.parts += _parse_characters(token, group.flags, outer_flags)
    return groups[0].to_node()


@dataclass(slots=True)
class _OpenGroup:
    flags: frozenset[str]
    branches: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)

    def to_node(self) -> Node:
        branch = Concatenation(tuple(self.parts))
        return Alternation((*self.branches, branch)) if self.branches else branch


def _apply_flags(flags: frozenset[str], opening: str) -> frozenset[str]:
    """Return the flags after an opening such as ``(?i)`` or ``(?s-i:``."""
    if not opening.startswith("(?") or "<" in opening:
        return flags
    on, _, off = opening.removeprefix("(?").rstrip("):").partition("-")
    return (flags | {*on}) - {*off}


def _parse_repeat(part: Node, token: re.Match[str]) -> Repeat:
    sign = token["repeats"]
    if token["min"] is None:
        return Repeat(part, min_count=int(sign == "+"), max_count=1 if sign == "?" else inf)
    min_count = int(token["min"])
    max_count = min_count if token["comma"] is None else int(token["max"]) if token["max"] else inf
    return Repeat(part, min_count=min_count, max_count=max_count)


def _parse_characters(
    token: re.Match[str], flags: frozenset[str], outer_flags: frozenset[str]
) -> Iterator[Node]:
    on = "".join(sorted((flags - outer_flags) & {"i", "s"}))
    off = "".join(f"-{flag}" for flag in outer_flags - flags)
    for text in [token[0]] if token["quoted"] is None else map(re.escape, token["quoted"]):
        yield _build_character(text, f"(?{on}{off}:{text})" if on or off else text)


@lru_cache(maxsize=4096)
def _build_character(text: str, pattern_with_flags: str) -> Character:
    if len(text) == 1 and text != ".":
        unspaced = pattern_with_flags if UNSPACED_LETTER.match(text) else None
        return Character(pattern_with_flags, text in SPACE_CHARACTERS, unspaced)
    regex, unspaced = re2.compile(pattern_with_flags), None
    if regex.search(_list_unspaced_script_letters()) is not None:
        unspaced = f"[{UNSPACED_SCRIPTS}]" if regex.fullmatch("a") else pattern_with_flags
    return Character(pattern_with_flags, any(map(regex.fullmatch, SPACE_CHARACTERS)), unspaced)


@lru_cache(maxsize=1)
def _list_unspaced_script_letters() -> str:
    return "".join(UNSPACED_LETTER.findall("".join(map(chr, range(0x0E00, 0xFB00)))))


def build_repeat_pattern(part: Node, min_count: int, max_count: float) -> str:
    if max_count == 0:
        return ""
    text = str(part) if isinstance(part, Character | Alternation) else f"(?:{part})"
    if (min_count, max_count) == (1, 1):
        return text
    return f"{text}{{{min_count},{'' if max_count == inf else int(max_count)}}}"


def compute_max_match_length(node: Node) -> float:
    """Return the maximum length of a match in characters, or infinity."""
    match node:
        case Character():
            return 1
        case Assertion():
            return 0
        case Concatenation(parts):
            return sum(map(compute_max_match_length, parts))
        case Alternation(branches):
            return max(map(compute_max_match_length, branches))
        case Repeat(part, _, most):
            length = compute_max_match_length(part)
            return length * most if length else 0
