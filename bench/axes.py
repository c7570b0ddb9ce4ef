"""Quantities that the cost of a call may grow with, and how each is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.policies import NO_EXTRAS, Sizes
from bench.rounds import Scenario
from bench.upstream import CHUNKS

BODY_BYTES = (1000, 10_000, 100_000, 1_000_000, 4_000_000)
TOTAL_CHUNKS_PER_S = 6000.0
LARGE_BODY_CONNECTIONS = 4  # the bytes of all bodies in flight are bounded


@dataclass(frozen=True)
class Axis:
    """A quantity, its sizes, and the policies, requests and upstream of each size."""

    title: str
    sizes: tuple[int, ...]
    parts: tuple[str, ...] = ("bare",)
    """Measured feature sets."""
    policies: Callable[[int], Sizes] = field(default=lambda size: NO_EXTRAS)
    scenario: Callable[[int], Scenario] = field(default=lambda size: Scenario())
    upstream: Callable[[int], tuple[str, ...]] = field(default=lambda size: ())
    counts_functions: bool = False
    total: Callable[[int], int] = field(default=lambda size: 0)
    """Calls per turn. 0 measures for a time instead."""


def _slow_upstream(streams: int) -> tuple[str, ...]:
    """Return upstream arguments that keep the chunk rate of all streams together constant."""
    return (str(CHUNKS), f"{1000 * streams / TOTAL_CHUNKS_PER_S:g}")


AXES = {
    "deployments": Axis(
        "deployments in the policies",
        (10, 100, 1000),
        policies=lambda size: Sizes(deployments=size),
        counts_functions=True,
    ),
    "keys": Axis(
        "keys in the policies",
        (10, 1000, 100_000),
        policies=lambda size: Sizes(keys=size),
        counts_functions=True,
    ),
    "rules": Axis(
        "unmatched rules of the deployment",
        (0, 50, 200, 500),
        policies=lambda size: Sizes(rules=size),
        counts_functions=True,
    ),
    "tags": Axis(
        "more tags of the call",
        (0, 8, 16, 32),
        parts=("bare", "everything"),
        policies=lambda size: Sizes(tags=size),
        counts_functions=True,
    ),
    "streams": Axis(
        "concurrent streams",
        (10, 100, 1000, 5000),
        parts=("bare", "everything"),
        scenario=lambda size: Scenario(stream=True, connections=size),
        upstream=_slow_upstream,
        total=lambda size: max(1000, size),
    ),
    "body": Axis(
        "bytes of the request",
        BODY_BYTES,
        parts=("bare", "everything"),
        scenario=lambda size: Scenario(size=size, connections=LARGE_BODY_CONNECTIONS),
    ),
    "answer": Axis(
        "bytes of the response",
        BODY_BYTES,
        parts=("bare", "everything"),
        scenario=lambda size: Scenario(connections=LARGE_BODY_CONNECTIONS),
        upstream=lambda size: ("1", "1", str(size)),
    ),
}
"""Quantities that are measured with whole processes."""
CACHE_ENTRIES = (1000, 10_000, 100_000, 1_000_000)
"""Sizes of the cache, which is measured alone."""
