"""How long a match of an RE2 pattern can be: what a stream has to hold back.

The standard library's own reader would not do: it is private, and it reads another language. RE2
has ``\\z``, ``\\pL`` and ``\\Q..\\E``, and takes ``{,5}`` for text. This one only adds up lengths,
of a pattern that RE2 has accepted; where it is in doubt it says too much, never too little.
"""

from __future__ import annotations

import math
import re

TOKENS = re.compile(
    r"""
      \\Q(?P<quoted>.*?)(?:\\E|\Z)
    | (?P<flags>\(\?[imsU-]+\))
    | (?P<opens>\((?:\?(?:P?<\w+>|[imsU-]*:))?)
    | (?P<closes>\))
    | (?P<other>\|)
    | (?P<repeats>[*+?]|\{(?P<least>[0-9]+)(?P<comma>,(?P<most>[0-9]*))?\})\??
    | (?P<between>\^|\$|\\[AzbB])
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


MAX_NESTING = 64


class _Group:
    """What has been read of a group: its longest branch, this branch, and its last piece."""

    __slots__ = ("branch", "last", "longest")

    def __init__(self) -> None:
        self.longest: float = 0
        self.branch: float = 0
        self.last: float = 0

    def add(self, length: float) -> None:
        self.branch += self.last
        self.last = length

    def end_branch(self) -> None:
        self.longest = max(self.longest, self.branch + self.last)
        self.branch = self.last = 0


def longest(pattern: str) -> int | None:
    """The most characters that one match can have; None where nothing bounds it.

    ``pattern`` is one that RE2 compiles. Raises ValueError for ``\\C``, which matches a part of a
    character and would cut it.
    """
    groups = [_Group()]
    for token in TOKENS.finditer(pattern):
        group = groups[-1]
        match token.lastgroup:
            case "opens":
                groups.append(_Group())
            case "closes":
                group.end_branch()
                groups.pop()
                groups[-1].add(group.longest)
            case "other":
                group.end_branch()
            case "repeats":
                group.last = _times(group.last, token)
            case _:
                group.add(_length(token))
    groups[0].end_branch()
    return None if math.isinf(groups[0].longest) else int(groups[0].longest)


def check_nesting(pattern: str) -> None:
    """Raise ``ValueError`` if groups are nested too deep for readers that recurse."""
    depth = 0
    for token in TOKENS.finditer(pattern):
        depth += (token.lastgroup == "opens") - (token.lastgroup == "closes")
        if depth > MAX_NESTING:
            raise ValueError(f"its groups are nested more than {MAX_NESTING} deep")


def _length(token: re.Match[str]) -> int:
    if token["byte"]:
        raise ValueError("\\C is not supported, because it matches a byte")
    if token["quoted"] is not None:
        return len(token["quoted"])
    return 1 if token["one"] else 0


def _times(length: float, token: re.Match[str]) -> float:
    if token["repeats"] == "?":
        return length
    if token["least"] is None or token["comma"] == ",":
        return length and math.inf
    return length * int(token["most"] or token["least"])
