"""Draws texts that a pattern matches, so that no secret has to be written down anywhere."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

PRINTED = [chr(code) for code in range(33, 127)]
# RE2 syntax that `re` spells differently, and flags that samples do not need.
FOREIGN = {
    "(?i)": "",
    r"\pL": "a-z",
    r"\pN": "0-9",
    "(?-i:": "(?:",
    "(?i:": "(?:",
    r"\z": r"\Z",
    "[[:alnum:]]": "[a-zA-Z0-9]",
}

CODE_POINT = re.compile(r"\\x\{([0-9A-Fa-f]+)\}")
WIDE = 1000  # from larger ranges only the first character is drawn

CLASSES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
}


def sample(pattern: str, chance: random.Random) -> str:
    """Return a random text that matches the pattern."""
    for theirs, ours in FOREIGN.items():
        pattern = pattern.replace(theirs, ours)
    pattern = CODE_POINT.sub(lambda code: re.escape(chr(int(code[1], 16))), pattern)
    return _sample_parts(parser.parse(pattern), chance)


def _sample_parts(parts: Any, chance: random.Random) -> str:
    return "".join(_part(code, value, chance) for code, value in parts)


def _part(code: Any, value: Any, chance: random.Random) -> str:
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.IN:
        return chance.choice(_members(value))
    if code is codes.BRANCH:
        return _sample_parts(chance.choice(value[1]), chance)
    if code is codes.SUBPATTERN:
        return _sample_parts(value[3], chance)
    if code in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
        minimum, maximum, inner = value
        times = (
            minimum
            if code is codes.MIN_REPEAT
            else chance.randint(minimum, min(maximum, minimum + 3))
        )
        return "".join(_sample_parts(inner, chance) for _ in range(times))
    return "x" if code in {codes.ANY, codes.NOT_LITERAL} else ""


def _members(items: Sequence[tuple[Any, Any]]) -> list[str]:
    matches: set[str] = set()
    for code, value in items:
        if code is codes.LITERAL:
            matches.add(chr(value))
        elif code is codes.RANGE:
            last_value = value[1] if value[1] - value[0] < WIDE else value[0]
            matches |= {chr(number) for number in range(value[0], last_value + 1)}
        elif code is codes.CATEGORY:
            pattern = re.compile(CLASSES[value])
            matches |= {number for number in [*PRINTED, " "] if pattern.match(number)}
    if items[0][0] is codes.NEGATE:
        return sorted(set(PRINTED) - matches)
    return sorted(matches)
