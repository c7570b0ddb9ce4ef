"""Confidence intervals and Markdown rows of the quality page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence


def wilson(hits: int, of: int) -> str:
    """Give a count with what its share may be, at 95 %, were more texts measured."""
    if not of:
        return "-"
    half, share_ = 1.96, hits / of
    middle = share_ + half**2 / (2 * of)
    around = half * math.sqrt(share_ * (1 - share_) / of + half**2 / (4 * of**2))
    low, high = ((middle + sign * around) / (1 + half**2 / of) for sign in (-1, 1))
    return f"{hits}/{of} ({max(low, 0):.3f}-{min(high, 1):.3f})"


def merged(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield Markdown rows. Rows that differ only in their first cell become one row."""
    names: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        name, *cells = map(str, row)
        names.setdefault(tuple(cells), []).append(name)
    for figures, first in names.items():
        yield "| " + " | ".join((", ".join(first), *figures)) + " |"
