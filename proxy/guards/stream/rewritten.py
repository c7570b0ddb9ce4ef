"""Placeholders as models write them back: as they were given, with Markdown's escapes, in percents,
over the end of a line, or without their brackets.

A placeholder is known by its name, which ends with a digest: loose reading never confuses two of
them. All is read in time linear in the text, and in the same way however it is cut.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_BREAK = r"(?:[ \t]{0,4}(?:\r?\n|(?:\\r)?\\n)[ \t]{0,16})"  # as it is, or as JSON has it
_LINE = r"(?:\\{0,2}_|%5[Ff])"
# A backslash before a bracket escapes it if another one is escaped in the same brackets. Else it
# separates the parts of a path or of a name.
_ESCAPED_OPEN = r"\\{1,2}\[(?=[^\[\]]*\\[_\]])"
_OPEN = rf"(?:{_ESCAPED_OPEN}|\[|%5[Bb])"
_CLOSE = r"(?:\\{0,2}\]|%5[Dd])"
# A name without brackets begins like a word; one with some has neither before nor within it.
_START = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[bfnrt])|(?<=%[0-9A-Fa-f]{2})(?<!%5[Ff]))"
    r"(?<![A-Za-z0-9]_)(?<![A-Za-z0-9]\\_)(?<![A-Za-z0-9]\\\\_)[A-Z]"
)
_WRITTEN = re.compile(
    rf"(?P<open>{_OPEN}){_BREAK}?(?:{_BREAK}?(?:[A-Za-z0-9]|{_LINE}))++{_BREAK}?{_CLOSE}"
    rf"|{_START}[A-Z0-9]*+(?:{_LINE}[A-Za-z0-9]++)++"
)
_BEGINS = re.compile(_START)
_LOOSE = re.compile(rf"{_BREAK}|(?P<line>{_LINE})|(?P<close>{_CLOSE})")
_PART = re.compile(  # of what stands for less than it has letters, at the end of a text
    r"(?:[ \t]{1,4}\r?|\r|[ \t]{0,4}\\(?:r(?:\\n?)?)?|\\{1,2}|%5?)\Z"
)
_PART_OF_OPEN = re.compile(r"(?:\\{1,2}|%5?)\Z")
_WORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_\\%"
BEFORE = 8  # characters that tell whether a word or a mail address begins


class RewrittenName(NamedTuple):
    """A placeholder as it stands in a text: ``name`` is without brackets; ``quoted`` says that it
    is in percents, as a part of an address."""

    start: int
    end: int
    name: str
    quoted: bool


class PlaceholderNames:
    """The names of the placeholders of one call, which are looked for in its answers."""

    __slots__ = ("_sorted", "longest")

    def __init__(self, names: Iterable[str]) -> None:
        self._sorted = sorted(names)
        # Each letter may be written with two more, and there may be some ends of lines.
        self.longest = 3 * max(map(len, self._sorted), default=0) + 64 if self._sorted else 0

    def written(self, text: str, since: int) -> Iterator[RewrittenName]:
        """Return the placeholders from a place of a text on. What is before it tells only whether
        a word begins there."""
        if "_" not in text and "%5" not in text:
            return
        at = since
        while (match := _WRITTEN.search(text, at)) is not None:
            start, end = match.span()
            opened = match["open"]
            name = _plain(text[start + len(opened or "") : end]).removesuffix("]")
            if end - start <= self.longest and self._has(name):
                yield RewrittenName(
                    start, end, name, quoted=opened is not None and opened[0] == "%"
                )
                at = end
            else:
                at = start + 1

    def pending(self, text: str, since: int) -> int:
        """Return where a tail starts that may become a placeholder; else the end of the text."""
        size = len(text)
        low = max(since, size - self.longest)
        begin = max(text.rfind("[", low), text.rfind("%5B", low), text.rfind("%5b", low))
        if begin >= 0 and self._is_open(text, begin):
            back = text[max(since, begin - 2) : begin] if text[begin] == "[" else ""
            return begin - len(back) + len(back.rstrip("\\"))
        tail = text[low:]
        word = size - len(tail) + len(tail.rstrip(_WORD))
        if word == size:
            return size
        for start in _BEGINS.finditer(text, max(word, since)):
            if self._is_begun(text[start.start() :]):
                return start.start()
        part = _PART_OF_OPEN.search(text, max(since, size - 2))
        return part.start() if part is not None else size

    def _is_open(self, text: str, begin: int) -> bool:
        """True if what begins with a bracket may become a placeholder."""
        rest = text[begin + (1 if text[begin] == "[" else 3) :]
        name = _plain(_PART.sub("", rest))
        return self._begins(name.removesuffix("]")) and not name.endswith("]")

    def _is_begun(self, word: str) -> bool:
        """True if a word without a bracket may become a placeholder, or is one unless it goes
        on."""
        name = _plain(_PART_OF_OPEN.sub("", word))
        return self._begins(name) or self._has(name.removesuffix("_"))

    def _has(self, name: str) -> bool:
        at = bisect.bisect_left(self._sorted, name)
        return at < len(self._sorted) and self._sorted[at] == name

    def _begins(self, name: str) -> bool:
        at = bisect.bisect_left(self._sorted, name)
        return at < len(self._sorted) and self._sorted[at].startswith(name)


def _plain(written: str) -> str:
    """Return a name as it was given; its bracket at the end, if there is one, is ``]``."""
    if written.isalnum():
        return written
    return _LOOSE.sub(_one, written)


def _one(match: re.Match[str]) -> str:
    return "_" if match["line"] else "]" if match["close"] else ""
