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
MAX_LISTED = 8  # names that `join_names` writes
EMPTY_TEXT = "''"  # how `join_names` writes an empty name

if TYPE_CHECKING:
    BoundedText = NewType("BoundedText", str)
else:
    BoundedText = str  # calling a NewType costs more than checking the text
T = TypeVar("T")


def shorten(text: str, max_chars: int = MAX_WORD) -> BoundedText:
    """Return a text cut to ``max_chars`` characters, without line breaks and control characters."""
    short = text[:max_chars]
    if short.isprintable():
        return BoundedText(short)
    return BoundedText("".join(c if c.isprintable() else "?" for c in short))


def shorten_to_ascii(text: str, max_chars: int = MAX_WORD) -> BoundedText:
    """Return a text cut to ``max_chars`` ASCII characters, valid in any header."""
    return BoundedText("".join(c if c.isascii() else "?" for c in shorten(text, max_chars)))


def quote(text: str) -> str:
    """Return a name in double quotes for a message."""
    return f'"{shorten(text, MAX_NAME)}"'


def read_text(value: object, max_chars: int = MAX_WORD) -> BoundedText | None:
    """Return a bounded text, or None for a value that is empty or not a string."""
    if not isinstance(value, str) or not value:
        return None
    is_bounded = not value[max_chars:] and value.isprintable()
    return BoundedText(value) if is_bounded else shorten(value, max_chars)


def first_items(values: Iterable[T], max_items: int = MAX_WORDS) -> list[T]:
    return list(islice(values, max_items))


def join_names(texts: Sequence[str]) -> str:
    """Return the first ``MAX_LISTED`` texts as a list, with the number of the others."""
    words = [shorten_to_ascii(text) or EMPTY_TEXT for text in texts[:MAX_LISTED]]
    remaining = len(texts) - len(words)
    return ", ".join(words) + (f" and {remaining} more" if remaining else "")


def format_count(count: int, singular: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``singular`` or ``plural`` (default: with an s)."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
