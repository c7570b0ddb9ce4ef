"""What a match of an RE2 pattern may be so far, where the last of it is white space: whether one is
under way at the end of a word, or none.

Most matches have no white space inside: of those none is under way behind a word. Of the others it
makes the pattern of their beginnings, in which every repeat and every branch may have stopped at
white space. It says too much rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import inf

from proxy.frozen import frozen
from proxy.guardrails.matching.match_length import TOKENS
from proxy.guardrails.matching.re2set import compiled

SPACES = " \n"  # behind which a stream is looked at
LEAST = 2  # characters of a beginning: white space alone is held anyway


@frozen
class One:
    """What takes one character."""

    text: str
    spacious: bool  # True if that may be white space

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


def beginnings(pattern: str) -> str | None:
    """Return the pattern of what a match may be so far at the end of a text, if its last character
    is white space, and it has ``LEAST`` characters or more; None where there is no such beginning.

    ``pattern`` is one that RE2 compiles.
    """
    stopped = _stopped(parsed(pattern), LEAST, more=False)
    return None if stopped is None else rf"(?:{stopped})\z"


def parsed(pattern: str) -> Node:
    """Return what a pattern is made of, its flags written at each of its characters."""
    groups = [_OpenGroup(frozenset())]
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
                group.parts += _single(token, group.flags)
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


def _single(token: re.Match[str], flags: frozenset[str]) -> Iterator[Node]:
    if token["between"]:
        yield Edge(f"(?m:{token[0]})" if "m" in flags else token[0])
        return
    kept = "".join(sorted(flags & {"i", "s"}))
    lead = f"(?{kept}:" if kept else ""
    letters = [token[0]] if token["quoted"] is None else map(re.escape, token["quoted"])
    for letter in letters:
        text = f"{lead}{letter})" if lead else letter
        yield One(text, _is_spacious(text))


@lru_cache(maxsize=1024)
def _is_spacious(letter: str) -> bool:
    found = compiled(letter)
    return any(found.fullmatch(space) is not None for space in SPACES)


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


def _stopped(node: Node, least: int, *, more: bool) -> str | None:
    """Return the pattern of what may have been read of a node, of at least so many characters, up
    to white space in it. ``more`` says that something has to follow the node."""
    match node:
        case One(text, spacious):
            return text if spacious and more and least <= 1 else None
        case Edge():
            return None
        case Several(parts):
            return _stopped_within(parts, least, more=more)
        case Either(branches):
            return _either(_stopped(branch, least, more=more) for branch in branches)
        case Repeat(One(_, spacious) as part, _, most):
            upto = most if more else most - 1
            least = max(1, least)
            return _times(part, least, upto) if spacious and upto >= least else None
        case Repeat(part, _, most):
            first = _stopped(part, least, more=more or most > 1)
            if most <= 1:
                return first
            left = int(max(0, least - _longest(part))) if least else 0
            again = _stopped(part, left, more=True)
            before = _times(part, 1, most - 1)
            return _either((first, None if again is None else before + again))


def _stopped_within(parts: Sequence[Node], least: int, *, more: bool) -> str | None:
    if not parts:
        return None
    first, rest = parts[0], parts[1:]
    ways = [_stopped(first, least, more=more or bool(rest))]
    for passed, left in _passed(first, least):
        behind = _stopped_within(rest, left, more=more)
        ways.append(None if behind is None else passed + behind)
    return _either(ways)


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
