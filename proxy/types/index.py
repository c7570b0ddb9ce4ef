"""Which item of a list in an answer is which, as the most lenient client reads its ``index``.

Whoever puts the pieces of a choice or of a tool call together does so by this number: guards,
captures, counts and rewordings never take two pieces for one that another takes for two.
"""

from __future__ import annotations

MOST = 1024  # characters of a number that is written as a string


def index_of(item: object, place: int) -> int:
    """Return the number by which a client tells an item of a list from others: a number however
    it is written, and one for any other word, for all lists and for all objects, wherever the
    item stands; its place where it has none. Never raise, whatever an upstream has put there."""
    index = item.get("index") if isinstance(item, dict) else None
    if index is None:
        return place
    if isinstance(index, str):
        return _number(index.strip()) if len(index) <= MOST else hash(index)
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
