"""Vector index: matches, refused embeddings, and bounds."""

from __future__ import annotations

import math
import random
import tracemalloc
from typing import Any

import pytest

from proxy.cache import semantic
from tests.for_each import for_each

SPACE, KEY = "space", b"key"


def vector(*numbers: float, model: str = "up/embed") -> semantic.Vector:
    return semantic.parse_vector(model, {"data": [{"embedding": [*numbers]}]})


def index(max_bytes: int = 10_000_000) -> semantic.VectorIndex:
    return semantic.VectorIndex(max_bytes, lambda entries, size: None)


@for_each(
    "item",
    [
        {"embedding": []},
        {"embedding": [0.0, 0]},
        {"embedding": [1.0, math.nan]},
        {"embedding": [1.0, math.inf]},
        {"embedding": [1.0, "2"]},
        {"embedding": [1.0, None]},
        {"embedding": [10**400]},
        {"embedding": [[1.0]]},
        {"embedding": "AACAPwAAAAA="},
        {"embedding": [1.0] * (semantic.MAX_DIMENSIONS + 1)},
        {"embedding": None},
        {"vector": [1.0]},
        [1.0],
        None,
    ],
)
def test_unusable_embeddings_are_refused(item: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        semantic.parse_vector("up/embed", {"data": [item]})


@for_each("document", [{}, {"data": []}, {"data": None}, None, {"data": [{"embedding": [1]}] * 2}])
def test_response_must_have_exactly_one_embedding(document: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        semantic.parse_vector("up/embed", document)


@for_each(
    ("other_vector", "threshold", "is_match"),
    [
        (vector(2, 0), 1.0, True),  # same direction, other length
        (vector(1, 0.1), 0.99, True),
        (vector(1, 1), 0.7, True),
        (vector(1, 1), 0.71, False),
        (vector(-1, 0), 0.5, False),
        (vector(1, 0, model="up/other"), 0.5, False),
        (vector(1, 0, 0), 0.5, False),
    ],
)
def test_vectors_match_by_cosine(
    other_vector: semantic.Vector, threshold: float, is_match: bool
) -> None:
    vectors = index()
    vectors.add(SPACE, KEY, vector(1, 0))

    assert vectors.find(SPACE, other_vector, threshold) == ([KEY] if is_match else [])
    assert vectors.find("other space", other_vector, threshold) == []


def test_nearest_vector_is_first() -> None:
    draw = random.Random(7)  # noqa: S311
    vectors = index()
    for number in range(semantic.MAX_VECTORS):
        vectors.add(SPACE, b"%d" % number, vector(*(draw.gauss(0, 1) for _ in range(256))))
    numbers = [draw.gauss(0, 1) for _ in range(256)]
    for noise, key in ((0.05, b"near"), (0.2, b"further")):
        vectors.add(SPACE, key, vector(*(item + draw.gauss(0, noise) for item in numbers)))

    matches = vectors.find(SPACE, vector(*numbers), 0.95)

    assert matches == [b"near", b"further"]


def test_number_of_compared_vectors_is_bounded() -> None:
    vectors = index()
    for number in range(2 * semantic.MAX_CANDIDATES):
        vectors.add(SPACE, b"%d" % number, vector(1, number))

    assert len(vectors.find(SPACE, vector(1, 1), -1)) == semantic.MAX_CANDIDATES


def test_space_has_a_bounded_number_of_vectors() -> None:
    sizes: list[tuple[int, int]] = []
    vectors = semantic.VectorIndex(10_000_000, lambda entries, size: sizes.append((entries, size)))
    for number in range(semantic.MAX_VECTORS + 5):
        vectors.add(SPACE, b"%d" % number, vector(1, number))
        vectors.add(SPACE, b"%d" % number, vector(1, number))

    assert sizes[-1] == (semantic.MAX_VECTORS, semantic.MAX_VECTORS * vector(1, 0).size)
    assert vectors.find(SPACE, vector(1, 0), 1.0) == []
    vectors.remove(SPACE, b"unknown")
    for number in range(semantic.MAX_VECTORS + 5):
        vectors.remove(SPACE, b"%d" % number)
    assert sizes[-1] == (0, 0)


def test_least_recently_used_space_is_evicted_first() -> None:
    vectors = index(2 * vector(1, 0).size)
    for space in ("one", "two"):
        vectors.add(space, KEY, vector(1, 0))
    vectors.find("one", vector(1, 0), 0.9)

    vectors.add("three", KEY, vector(1, 0))

    matches = [space for space in ("one", "two", "three") if vectors.find(space, vector(1, 0), 0.9)]
    assert matches == ["one", "three"]
    vectors.add("four", KEY, vector(*range(1, 1000)))  # more than fits
    assert vectors.find("four", vector(*range(1, 1000)), 0.9) == []


@for_each(("spaces", "length"), [(1, 256), (300, 256), (300, 3)])
def test_index_takes_at_most_the_counted_memory(spaces: int, length: int) -> None:
    draw = random.Random(7)  # noqa: S311
    sizes = [(0, 0)]
    vectors = semantic.VectorIndex(10_000_000, lambda entries, size: sizes.append((entries, size)))
    tracemalloc.start()
    try:
        bytes_before = tracemalloc.get_traced_memory()[0]
        for number in range(300):
            numbers = [draw.gauss(0, 1) for _ in range(length)]
            space = ("memory", "vectors", draw.randbytes(32)) if spaces > 1 else SPACE
            vectors.add(space, draw.randbytes(32), vector(*numbers, model=f"up/{number}"))
        # Without the list of sizes.
        used_bytes = tracemalloc.get_traced_memory()[0] - bytes_before - 300 * 130
    finally:
        tracemalloc.stop()

    assert used_bytes <= sizes[-1][1] <= 3 * used_bytes
