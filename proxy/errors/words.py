"""Bounded texts of clients and upstreams.

Only such texts outlast a call in logs, metrics, spans, messages and headers, so that their size is
independent of what a client or upstream sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NewType, TypeVar

MAX_NAME = 256  # characters of a name in a request or a policy; longer names are rejected
MAX_WORD = 64  # characters of a word in a log, metric, message or header
MAX_ID = 200  # characters of an id or a model name in a response
MAX_TEXT = 2000  # characters of an upstream's error message
MAX_WORDS = 32  # words of one kind per call
MAX_MODELS = 1000  # models per call, whatever a policy allows
MAX_LISTED = 8  # items that `listed` writes
EMPTY = "''"  # how `listed` writes an empty text

if TYPE_CHECKING:
    Word = NewType("Word", str)
else:
    Word = str  # calling a NewType costs more than checking the text
T = TypeVar("T")


def word(text: str, max_chars: int = MAX_WORD) -> Word:
    """Return a text cut to ``max_chars`` characters, without line breaks and control characters."""
    short = text[:max_chars]
    if short.isprintable():
        return Word(short)
    return Word("".join(c if c.isprintable() else "?" for c in short))


def ascii_word(text: str, max_chars: int = MAX_WORD) -> Word:
    """Return a text cut to ``max_chars`` ASCII characters, valid in any header."""
    return Word("".join(c if c.isascii() else "?" for c in word(text, max_chars)))


def quoted(text: str) -> str:
    """Return a name in double quotes for a message."""
    return f'"{word(text, MAX_NAME)}"'


def word_of(value: object, max_chars: int = MAX_WORD) -> Word | None:
    """Return a bounded text, or None for a value that is empty or not a string."""
    if not isinstance(value, str) or not value:
        return None
    return Word(value) if not value[max_chars:] and value.isprintable() else word(value, max_chars)


def first_items(values: Iterable[T], max_items: int = MAX_WORDS) -> list[T]:
    return list(islice(values, max_items))


def listed(texts: Sequence[str]) -> str:
    """Return the first ``MAX_LISTED`` texts as a list, with the number of the others."""
    words = [ascii_word(text) or EMPTY for text in texts[:MAX_LISTED]]
    remaining = len(texts) - len(words)
    return ", ".join(words) + (f" and {remaining} more" if remaining else "")


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``singular`` or ``plural`` (default: with an s)."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
