"""The words of others, bounded: what a client or an upstream has written, as it outlasts a call.

A text, a name or a list of theirs may be as long as a body. Of these nothing is kept, logged,
counted, traced or shown after a call, and nothing stands in a message or a header of ours, but a
``Word`` or a few of them: so none of that is larger than a fixed size, whatever it was taken from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NewType, TypeVar

MAX_NAME = 256  # characters of a name that others choose: a longer one is refused where it comes in
MAX_WORD = 64  # of one that is shown or written
MAX_ID = 200  # of an id or a model in an answer
MAX_TEXT = 2000  # of a message of an upstream
MAX_WORDS = 32  # of one kind in one call
MAX_MODELS = 1000  # that a call may ask, whatever a policy allows
MAX_LISTED = 8  # in a sentence
EMPTY = "''"  # stands for an empty one there

if TYPE_CHECKING:
    Word = NewType("Word", str)
else:
    Word = str  # to call the other costs more than to look at the text
T = TypeVar("T")


def word(text: str, most: int = MAX_WORD) -> Word:
    """Return a text cut to so many characters, on one line."""
    short = text[:most]
    if short.isprintable():
        return Word(short)
    return Word("".join(c if c.isprintable() else "?" for c in short))


def ascii_word(text: str, most: int = MAX_WORD) -> Word:
    """Return a text cut to so many characters, as it may stand in any header."""
    return Word("".join(c if c.isascii() else "?" for c in word(text, most)))


def quoted(text: str) -> str:
    """Return a name in double quotes, as it stands in a message."""
    return f'"{word(text, MAX_NAME)}"'


def word_of(value: object, most: int = MAX_WORD) -> Word | None:
    """Return what should be a name as a word; None where it is no text, or an empty one."""
    if not isinstance(value, str) or not value:
        return None
    return Word(value) if not value[most:] and value.isprintable() else word(value, most)


def first_items(values: Iterable[T], most: int = MAX_WORDS) -> list[T]:
    """Return the first of what others may make any number of."""
    return list(islice(values, most))


def listed(texts: Sequence[str]) -> str:
    """Return texts as part of a message: the first of them, and how many there are beside."""
    words = [ascii_word(text) or EMPTY for text in texts[:MAX_LISTED]]
    left = len(texts) - len(words)
    return ", ".join(words) + (f" and {left} more" if left else "")


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a count and what it counts: ``one``, or ``several``, else ``one`` with an s."""
    return f"{count} {one if count == 1 else several or one + 's'}"
