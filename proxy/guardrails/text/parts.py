"""Where a model or a client reads several texts as one: the parts of what a message says."""

from __future__ import annotations

from proxy.guardrails.text.walk import Path

_IN_PARTS = frozenset({"content", "output", "parts", "summary", "system", "thinking"})
_OF_PART: tuple[Path, ...] = ((), ("text",))


def parts_of(path: Path) -> int | None:
    """Return how many steps lead to what has parts that a model or a client reads as one, where a
    text is one of them, or all there is; None for any other text."""
    if path[-1] in _IN_PARTS:
        return len(path)
    for at, step in enumerate(path[:-1]):
        if step in _IN_PARTS and isinstance(path[at + 1], int) and path[at + 2 :] in _OF_PART:
            return at + 1
    return None
