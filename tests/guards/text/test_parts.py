"""A path leads to what has parts, where its text is one of them."""

from __future__ import annotations

from proxy.guards.text.walk import Path, parts_of
from tests.for_each import for_each


@for_each(
    ("path", "steps"),
    [
        (("messages", 0, "content"), 3), (("messages", 0, "content", 1, "text"), 3),
        (("messages", 0, "content", 1), 3),
        (("messages", 0, "content", 1, "content", 2, "text"), 5),
        (("input", 0, "output", 1, "text"), 3), (("input", 0, "summary", 1, "text"), 3),
        (("system", 1, "text"), 1), (("messages", 0, "content", 1, "title"), None),
        (("messages", 0, "name"), None), (("metadata", "content", "text"), None),
    ],
)  # fmt: skip
def test_parts_are_told_by_where_they_stand(path: Path, steps: int | None) -> None:
    assert parts_of(path) == steps
