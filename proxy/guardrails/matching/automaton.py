"""A pattern as RE2 runs it, in places and states that can be counted: RE2 itself shows none.

A place of a pattern takes one character, or goes on without one. The places that are reached
together, in the order in which the pattern prefers them, are a state. RE2 makes these as it reads,
out of bytes; here they are made out of characters, of which one stands for all that the pattern
does not tell apart.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from proxy.frozen import frozen
from proxy.guardrails.matching.match_length import TOKENS
from proxy.guardrails.matching.re2set import compiled

MAX_PLACES = 10_000
"""Places of one pattern, its counted repeats written out."""

# Some of each kind that a class may tell apart, beside what stands in the pattern itself.
CHARACTERS = string.printable + "éßяαאعअท水あ한🌊٣\u0301\u00a0"

State = tuple[int, ...]
"""Places, the preferred one first, before they have gone on without a character."""


@frozen
class Place:
    """``matcher`` is the number of what it takes, or -1 for nothing: then ``jumps`` are the
    distances to where it goes on, the preferred one first, if ``between`` holds there."""

    matcher: int = -1
    jumps: tuple[int, ...] = (1,)
    between: str = ""


@frozen
class Transition:
    """What one character does to a state: the state after it, if a match ended before it, and how
    many places were asked for it."""

    after: State
    matched: bool
    places: int


class Automaton:
    """The places of a pattern that RE2 takes. Raises ValueError for one of too many.

    ``letters`` has one character of each set that the pattern does not tell apart.
    """

    __slots__ = ("_accepts", "_known", "_looks_around", "_places", "_reachable", "letters")

    def __init__(self, pattern: str) -> None:
        matchers: dict[str, int] = {}
        self._places = _read(pattern, matchers)
        self._looks_around = any(place.between for place in self._places)
        self._accepts: dict[str, list[bool]] = {}
        self._known: dict[tuple[State, str, str], Transition] = {}
        self._reachable: dict[tuple[State, str, str], tuple[list[int], bool]] = {}
        found = [compiled(matcher) for matcher in matchers]
        sets: set[object] = set()
        for letter in dict.fromkeys(CHARACTERS + pattern):
            taken = [each.fullmatch(letter) is not None for each in found]
            alike = (*taken, self._looks_around and _sort(letter))
            if alike not in sets:
                sets.add(alike)
                self._accepts[letter] = taken
        self.letters = "".join(self._accepts)

    @property
    def begin(self) -> State:
        return (0,)

    def step(self, state: State, before: str, letter: str) -> Transition:
        """Return what ``letter`` does to ``state``: the same object each time.

        ``before`` is the character before it. Both are of ``letters``, or empty where the text
        begins or ends.
        """
        before = _sort(before) if self._looks_around else ""
        known = self._known.get((state, before, letter))
        if known is None:
            known = self._known[state, before, letter] = self._new(state, before, letter)
        return known

    def _new(self, state: State, before: str, letter: str) -> Transition:
        edge = (state, before, _sort(letter) if self._looks_around else "")
        if edge not in self._reachable:
            self._reachable[edge] = self._reached(*edge)
        taking, matched = self._reachable[edge]
        places, accepts = self._places, self._accepts.get(letter)
        after = [at + 1 for at in taking if accepts and accepts[places[at].matcher]]
        # A search begins anew at each character, until one has matched.
        if not matched and 0 in state:
            after.append(0)
        return Transition(tuple(dict.fromkeys(after)), matched, len(taking))

    def _reached(self, state: State, before: str, after: str) -> tuple[list[int], bool]:
        """Return the places that take a character next, and if the end of the pattern is reached,
        between characters of these sorts."""
        seen: set[int] = set()
        taking: list[int] = []
        waiting = list(reversed(state))
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            if at == len(self._places):
                return taking, True
            place = self._places[at]
            if place.matcher >= 0:
                taking.append(at)
            elif _holds(place.between, before, after):
                waiting += [at + jump for jump in reversed(place.jumps)]
        return taking, False


class _Fragments:
    """What has been read of a group: its branches, this one, its last piece, and its flags."""

    __slots__ = ("branch", "branches", "flags", "last")

    def __init__(self, flags: str) -> None:
        self.flags = flags
        self.branches: list[list[Place]] = []
        self.branch: list[Place] = []
        self.last: list[Place] = []

    def add(self, piece: list[Place]) -> None:
        self.branch += self.last
        self.last = piece
        _bounded(len(self.branch))

    def end_branch(self) -> None:
        self.add([])
        self.branches.append(self.branch)
        self.branch = []

    def joined(self) -> list[Place]:
        self.end_branch()
        joined = self.branches.pop()
        for branch in reversed(self.branches):
            split, past = Place(jumps=(1, len(branch) + 2)), Place(jumps=(len(joined) + 1,))
            joined = [split, *branch, past, *joined]
        return joined


def _read(pattern: str, matchers: dict[str, int]) -> list[Place]:
    """Return the places of a pattern; what they take gets its number in ``matchers``."""
    groups = [_Fragments("")]
    for token in TOKENS.finditer(pattern):
        group = groups[-1]
        match token.lastgroup:
            case "opens":
                groups.append(_Fragments(group.flags + _own_flags(token[0])))
            case "closes":
                groups.pop()
                groups[-1].add(group.joined())
            case "other":
                group.end_branch()
            case "flags":
                group.flags += token[0]
            case "repeats":
                group.last = _repeated(group.last, token, _has(group.flags, "U"))
            case _:
                for place in _single(token, group.flags, matchers):
                    group.add([place])
    return groups[0].joined()


def _single(token: re.Match[str], flags: str, matchers: dict[str, int]) -> Iterator[Place]:
    """Yield the places of a token that stands for itself: an edge, or what takes characters."""
    if token["between"]:
        lines = "m" if _has(flags, "m") and token[0] in "^$" else ""
        yield Place(between=lines + token[0])
        return
    letters = [token[0]] if token["quoted"] is None else map(re.escape, token["quoted"])
    for letter in letters:
        yield Place(matchers.setdefault(flags + letter, len(matchers)))


def _own_flags(opening: str) -> str:
    """Return the flags of a group that has some, such as ``(?i)`` for ``(?i:``."""
    return f"{opening[:-1]})" if opening.endswith(":") and opening != "(?:" else ""


def _has(flags: str, flag: str) -> bool:
    """True if ``flag`` was turned on last, not off, in flags such as ``(?i)(?s-U)``."""
    on = False
    for each in re.findall(r"\(\?(\w*)-?(\w*)\)", flags):
        on = (on or flag in each[0]) and flag not in each[1]
    return on


def _repeated(piece: list[Place], token: re.Match[str], lazy: bool) -> list[Place]:
    sign = token["repeats"]
    least = int(token["least"] or (1 if sign == "+" else 0))
    endless = sign in "*+" or token["most"] == ""
    more = 1 if endless or sign == "?" else int(token["most"] or least) - least
    _bounded((least + more) * (len(piece) + 1))
    lazy = (token[0] != sign) != lazy

    def either(past: int) -> Place:
        return Place(jumps=(past, 1) if lazy else (1, past))

    if endless:
        # As RE2 does, (x+)? for x*: it is another order where x may match nothing.
        again = Place(jumps=(1, -len(piece)) if lazy else (-len(piece), 1))
        once = [*piece, again]
        return [*piece * (least - 1), *once] if least else [either(len(once) + 1), *once]
    left = range(more * (len(piece) + 1), 0, -len(piece) - 1)
    return piece * least + [each for end in left for each in (either(end), *piece)]


def _bounded(places: int) -> None:
    if places > MAX_PLACES:
        raise ValueError(f"has more than {MAX_PLACES:,} states when its repeats are expanded")


def _sort(letter: str) -> str:
    """What an edge sees of a character: nothing, a new line, a letter of ASCII, or another."""
    if letter in ("", "\n"):
        return letter
    return "w" if letter.isascii() and (letter.isalnum() or letter == "_") else "-"


def _holds(between: str, before: str, after: str) -> bool:
    """True if an edge is there between characters of these sorts."""
    match between:
        case "":
            return True
        case "^" | r"\A":
            return not before
        case "$" | r"\z":
            return not after
        case "m^":
            return before in ("", "\n")
        case "m$":
            return after in ("", "\n")
        case _:
            return ((before == "w") != (after == "w")) == (between == r"\b")
