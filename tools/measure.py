"""Detectors, counts with confidence intervals, and Markdown of the guard measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from proxy.guards.guard_kind import NO_CONTEXT, MaxCallCost
from proxy.guards.kinds import KINDS
from proxy.guards.text.normalize import build_views
from proxy.types.guard import Detector, is_detector


def detector(kind: str, **options: object) -> Detector:
    """Build a detector of a guard kind."""
    built = KINDS[kind].make(KINDS[kind].Keys(**options), NO_CONTEXT)
    assert not isinstance(built, MaxCallCost)  # noqa: S101  # for the type
    assert is_detector(built)  # noqa: S101  # for the type
    return built


def finds(guard: Detector, text: str, *, cased: bool) -> bool:
    """Return True if a guard finds something in any normalization of a text."""
    views = build_views(text, in_json=False)
    return any(guard.find(view.cased if cased else view.folded) for view in views)


def count_hits(guard: Detector, texts: Iterable[str]) -> int:
    return sum(bool(guard.find(text)) for text in texts)


def wilson(hits: int, total: int) -> str:
    """Return a count with the 95 % Wilson interval of its share."""
    if not total:
        return "-"
    z, share = 1.96, hits / total
    center = share + z**2 / (2 * total)
    margin = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    low, high = ((center + sign * margin) / (1 + z**2 / total) for sign in (-1, 1))
    return f"{hits}/{total} ({max(low, 0):.3f}-{min(high, 1):.3f})"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"


def merge_rows(rows: Iterable[Sequence[object]]) -> Iterator[Sequence[object]]:
    """Merge rows that differ only in their first cell."""
    names_by_cells: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        name, *cells = map(str, row)
        names_by_cells.setdefault(tuple(cells), []).append(name)
    for figures, names in names_by_cells.items():
        yield (", ".join(names), *figures)


def generated(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Put the markers of ``tools.docs`` around lines."""
    yield f"<!-- generated: {name} -->"
    yield from lines
    yield f"<!-- end: {name} -->"
