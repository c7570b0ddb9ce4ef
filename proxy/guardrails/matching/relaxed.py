"""Patterns made cheap to compile: one that matches wherever another does, and a little more.

A repeat counted up to hundreds is a copy for each, and a class of all letters is hundreds of ranges
of bytes wherever it stands. A set needs neither to tell that there is nothing, and it is compiled
with the interpreter held: nobody is served meanwhile.
"""

from __future__ import annotations

import re

RE2S_MOST = 1000  # RE2 refuses a repeat that is counted further
MOST_COPIES = 64  # of what repeats, at the least
FEW_COPIES = 8  # up to which a repeat is counted as it is written

_CLASS = r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]"
_PART = re.compile(
    rf"\\Q.*?(?:\\E|$)|\\x\{{[0-9A-Fa-f]+\}}|\\p[LN]|\\p\{{[LN]\}}|\\.|(?P<set>{_CLASS})"
    r"|\{(?P<least>\d+)(?P<comma>,)?(?P<most>\d*)\}",
    re.DOTALL,
)
_LETTERS = re.compile(r"\\p(?:\{(?P<braced>[LN])\}|(?P<plain>[LN]))|\\.", re.DOTALL)
_ASCII = {"L": "A-Za-z", "N": "0-9"}
_BEYOND = r"\x{80}-\x{10FFFF}"


def relaxed(pattern: str) -> str:
    """Return a pattern of RE2 that matches at least where ``pattern`` does, and within ASCII hardly
    anywhere else: letters and figures beyond ASCII are any characters there, long repeats have no
    end."""
    return _PART.sub(_relaxed, pattern)


def _relaxed(part: re.Match[str]) -> str:
    if part["least"] is not None:
        return _repeat(int(part["least"]), part["comma"], part["most"], part[0])
    written = part["set"]
    if written is None:
        letters = _LETTERS.fullmatch(part[0])
        return f"[{_wide(letters)}]" if letters and part[0][1] == "p" else part[0]
    if written.startswith("[^") and r"\PL" in written:  # some of all letters
        return f"[{_ASCII['L']}{_BEYOND}]"
    if written.startswith("[^"):
        return _LETTERS.sub(_narrow, written)
    return _LETTERS.sub(_wide, written)


def _repeat(least: int, comma: str | None, most: str, written: str) -> str:
    """Return a repeat that is at least as long; what is counted up to few copies stays, and what
    RE2 refuses."""
    if max(least, int(most or 0)) > RE2S_MOST:
        return written
    if least > MOST_COPIES:
        return f"{{{MOST_COPIES},}}"
    return f"{{{least},}}" if comma and most and int(most) > FEW_COPIES + least else written


def _wide(letters: re.Match[str]) -> str:
    """Return what is in a class that holds all of these, and more."""
    kind = letters["plain"] or letters["braced"]
    return f"{_ASCII[kind]}{_BEYOND}" if kind else letters[0]


def _narrow(letters: re.Match[str]) -> str:
    """Return what is in a class that holds some of these: all but them is more then."""
    kind = letters["plain"] or letters["braced"]
    return _ASCII[kind] if kind else letters[0]
