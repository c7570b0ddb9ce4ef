"""What a match of an RE2 pattern may be so far, where the last of it is white space, or a letter of
a script without spaces: whether one is under way at the end of a word, or none.

Most matches have neither inside: of those none is under way behind a word. Of the others it makes
the pattern of their beginnings, in which every repeat and every branch may have stopped at such a
place. It says too much rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import inf

from proxy.frozen import frozen
from proxy.guardrails.matching.re2set import compiled
from proxy.guardrails.matching.scripts import UNSPACED_LETTER, WITHOUT_SPACES
from proxy.guardrails.matching.tokens import TOKENS

SPACES = " \n"  # behind which a stream is looked at
ANY_CASE = "(?i)"
LEAST = 2  # characters of a beginning: white space alone is held anyway


@frozen
class One:
    """What takes one character."""

    text: str
    spacious: bool  # True if that may be white space
    last: str | None  # what takes it where it is a letter of a script without spaces, if it may be

    def __str__(self) -> str:
        return self.text


@frozen
class Edge:
    """What takes none, and depends on those beside it."""

    text: str

    def __str__(self) -> str:
        return self.text


@frozen
class Several:
    """Parts that follow each other."""

    parts: Sequence[Node]

    def __str__(self) -> str:
        return "".join(map(str, self.parts))


@frozen
class Either:
    """Branches, of which one is taken."""

    branches: Sequence[Node]

    def __str__(self) -> str:
        return f"(?:{'|'.join(map(str, self.branches))})"


@frozen
class Repeat:
    """A part that comes at least so often, and at most so often."""

    part: Node
    least: int
    most: float

    def __str__(self) -> str:
        return _times(self.part, self.least, self.most)


Node = One | Edge | Several | Either | Repeat


def beginnings(pattern: str, *, unspaced: bool = False) -> str | None:
    """Return the pattern of what a match may be so far at the end of a text, if its last character
    is white space, and it has ``LEAST`` characters or more; None where there is no such beginning.
    ``unspaced`` asks for those whose last is a letter of a script without spaces instead.

    ``pattern`` is one that RE2 compiles.
    """
    return _beginnings(pattern)[unspaced]


@lru_cache(maxsize=2048)
def _beginnings(pattern: str) -> tuple[str | None, str | None]:
    """Return the beginnings that end with white space, and those that end ``unspaced``."""
    lead = ANY_CASE if pattern.startswith(ANY_CASE) else ""  # said once, not at each letter
    read = parsed(pattern.removeprefix(lead), frozenset("i" if lead else ""))
    both = (_stopped(read, LEAST, ends, more=False) for ends in (_spacious_end, _unspaced_end))
    spacious, unspaced = (stopped and rf"{lead}(?:{stopped})\z" for stopped in both)
    return spacious, unspaced


def longest(pattern: str) -> int | None:
    """Return the maximum length of a match in characters. Return None if it is unbounded."""
    length = _longest(parsed(pattern))
    return None if length == inf else int(length)


def parsed(pattern: str, around: frozenset[str] = frozenset()) -> Node:
    """Return what a pattern is made of, its flags written at each of its characters, but for those
    that hold ``around`` it."""
    groups = [_OpenGroup(around)]
    for token in TOKENS.finditer(pattern):
        group = groups[-1]
        match token.lastgroup:
            case "opens":
                groups.append(_OpenGroup(_flagged(group.flags, token[0])))
            case "closes":
                groups.pop()
                groups[-1].parts.append(group.node())
            case "other":
                group.branches.append(Several(tuple(group.parts)))
                group.parts = []
            case "flags":
                group.flags = _flagged(group.flags, token[0])
            case "repeats":
                group.parts[-1] = _repeated(group.parts[-1], token)
            case _:
                group.parts += _single(token, group.flags, around)
    return groups[0].node()


class _OpenGroup:
    """What has been read of a group: its branches, the parts of this one, and its flags."""

    __slots__ = ("branches", "flags", "parts")

    def __init__(self, flags: frozenset[str]) -> None:
        self.flags = flags
        self.branches: list[Node] = []
        self.parts: list[Node] = []

    def node(self) -> Node:
        last = Several(tuple(self.parts))
        return Either((*self.branches, last)) if self.branches else last


def _flagged(flags: frozenset[str], opening: str) -> frozenset[str]:
    """Return the flags behind an opening such as ``(?i)`` or ``(?s-i:``."""
    on, _, off = opening.removeprefix("(?").rstrip("):").partition("-")
    if not opening.startswith("(?") or "<" in opening:
        return flags
    return (flags | {*on}) - {*off}


def _single(token: re.Match[str], flags: frozenset[str], around: frozenset[str]) -> Iterator[Node]:
    if token["between"]:
        yield Edge(f"(?m:{token[0]})" if "m" in flags else token[0])
        return
    on = "".join(sorted((flags - around) & {"i", "s"}))
    off = "".join(f"-{flag}" for flag in around - flags)
    lead = f"(?{on}{off}:" if on or off else ""
    letters = [token[0]] if token["quoted"] is None else map(re.escape, token["quoted"])
    for letter in letters:
        text = f"{lead}{letter})" if lead else letter
        spacious, last = _ends_of(letter, text)
        yield One(text=text, spacious=spacious, last=last)


@lru_cache(maxsize=4096)
def _ends_of(letter: str, text: str) -> tuple[bool, str | None]:
    """Return whether what takes a character may take white space, and what takes it where it is a
    letter of a script without spaces; ``text`` is the same with its flags."""
    if len(letter) == 1 and letter != ".":
        return letter in SPACES, text if UNSPACED_LETTER.match(letter) else None
    found = compiled(text)
    spacious = any(found.fullmatch(space) is not None for space in SPACES)
    if found.search(_every_unspaced()) is None:
        return spacious, None
    return spacious, f"[{WITHOUT_SPACES}]" if found.fullmatch("a") else text


@lru_cache(maxsize=1)
def _every_unspaced() -> str:
    return "".join(map(chr, filter(_is_unspaced, range(0x0E00, 0xFB00))))


def _is_unspaced(code: int) -> bool:
    return UNSPACED_LETTER.match(chr(code)) is not None


Ends = Callable[[One], str | None]
"""Returns what takes the last character that has come, None where it cannot be this one's."""


def _spacious_end(one: One) -> str | None:
    return one.text if one.spacious else None


def _unspaced_end(one: One) -> str | None:
    return one.last


def _repeated(part: Node, token: re.Match[str]) -> Repeat:
    sign = token["repeats"]
    if token["least"] is None:
        return Repeat(part, least=int(sign == "+"), most=1 if sign == "?" else inf)
    least = int(token["least"])
    most = least if token["comma"] is None else int(token["most"]) if token["most"] else inf
    return Repeat(part, least=least, most=most)


def _times(part: Node, least: int, most: float) -> str:
    if most == 0:
        return ""
    text = str(part) if isinstance(part, (One, Either)) else f"(?:{part})"
    if (least, most) == (1, 1):
        return text
    upto = "" if most == inf else str(int(most))
    return f"{text}{{{least},{upto}}}"


def _longest(node: Node) -> float:
    match node:
        case One():
            return 1
        case Edge():
            return 0
        case Several(parts):
            return sum(map(_longest, parts))
        case Either(branches):
            return max(map(_longest, branches))
        case Repeat(part, _, most):
            length = _longest(part)
            return length * most if length else 0


def _stopped(node: Node, least: int, ends: Ends, *, more: bool) -> str | None:
    """Return the pattern of what may have been read of a node, of at least so many characters, up
    to white space in it. ``more`` says that something has to follow the node."""
    match node:
        case One():
            return ends(node) if more and least <= 1 else None
        case Edge():
            return None
        case Several(parts):
            return _stopped_within(parts, least, ends, more=more)
        case Either(branches):
            return _either(_stopped(branch, least, ends, more=more) for branch in branches)
        case Repeat():
            return _stopped_repeat(node, least, ends, more=more)


def _stopped_repeat(node: Repeat, least: int, ends: Ends, *, more: bool) -> str | None:
    part, most = node.part, node.most
    if isinstance(part, One):
        upto, least, last = most if more else most - 1, max(1, least), ends(part)
        if last is None or upto < least:
            return None
        if last == part.text:
            return _times(part, least, upto)
        return _times(part, least - 1, upto - 1) + last
    first = _stopped(part, least, ends, more=more or most > 1)
    if most <= 1:
        return first
    left = int(max(0, least - _longest(part))) if least else 0
    again = _stopped(part, left, ends, more=True)
    before = _times(part, 1, most - 1)
    return _either((first, None if again is None else before + again))


def _stopped_within(parts: Sequence[Node], least: int, ends: Ends, *, more: bool) -> str | None:
    lead = []  # of single characters, which are passed in one way
    for at, part in enumerate(parts, 1):
        ways = [_stopped(part, least, ends, more=more or at < len(parts))]
        if ways[0] is None and isinstance(part, (One, Edge)):
            lead.append(part.text)
            least = max(0, least - isinstance(part, One))
            continue
        for passed, left in _passed(part, least):
            behind = _stopped_within(parts[at:], left, ends, more=more)
            ways.append(None if behind is None else passed + behind)
        stopped = _either(ways)
        return None if stopped is None else "".join(lead) + stopped
    return None


def _passed(node: Node, least: int) -> Iterator[tuple[str, int]]:
    """Yield the ways to pass a whole node, each with how many characters are still wanted."""
    if isinstance(node, Repeat) and isinstance(node.part, One):
        for times in range(node.least, int(min(least, node.most + 1))):
            yield _times(node.part, times, times), least - times
        if node.most >= least:
            yield _times(node.part, max(node.least, least), node.most), 0
        return
    yield str(node), int(max(0, least - _longest(node)))


def _either(ways: Iterator[str | None] | Sequence[str | None]) -> str | None:
    """Return a pattern of those ways that there are."""
    known = [*dict.fromkeys(way for way in ways if way is not None)]
    if not known:
        return None
    return known[0] if len(known) == 1 else f"(?:{'|'.join(known)})"
