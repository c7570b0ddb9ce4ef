"""Reads the ``index`` of list items as the most lenient client does.

All stages that join pieces of a choice or a tool call use this function, so that they agree on
which pieces belong together.
"""

from __future__ import annotations

MAX_DIGITS = 1024  # characters of a number that is written as a string


def index_of(item: object, place: int) -> int:
    """Return the index of a list item, or its ``place`` if the item has none. Never raises.

    Numbers may be strings. Any other value maps to one number per value or type.
    """
    index = item.get("index") if isinstance(item, dict) else None
    if index is None:
        return place
    if isinstance(index, str):
        return _number(index.strip()) if len(index) <= MAX_DIGITS else hash(index)
    if isinstance(index, int | float):
        return int(index) if isinstance(index, int) or index.is_integer() else hash(str(index))
    return hash(type(index).__name__)


def _number(text: str) -> int:
    for read in (int, float, _prefixed):
        try:
            number = read(text)
        except ValueError:
            continue
        if number == number // 1:
            return int(number)
    return hash(text)


def _prefixed(text: str) -> int:
    return int(text, 0)
