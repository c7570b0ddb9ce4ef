"""Which item of a list in an answer is which, as the most lenient client reads its ``index``.

Whoever puts the pieces of a choice or of a tool call together does so by this number: guards,
captures, counts and rewordings never take two pieces for one that another takes for two.
"""

from __future__ import annotations

MOST_DIGITS = 10  # of an index that is written as a string


def index_of(item: object, place: int) -> int:
    """Return the number by which a client tells an item of a list from others, be it a number or
    a string; its place where it is neither. Never raise, whatever an upstream has put there."""
    index = item.get("index") if isinstance(item, dict) else None
    if isinstance(index, int):
        return int(index)
    if not isinstance(index, float | str):
        return place
    if isinstance(index, float) and index.is_integer():
        return int(index)
    written = str(index)
    whole = written.isascii() and written.isdigit() and len(written) < MOST_DIGITS
    return int(written) if whole else hash(written)
