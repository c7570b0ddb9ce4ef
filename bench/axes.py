"""What a call's cost may grow with, and how each is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.policies import NO_MORE, Sizes
from bench.rounds import Scenario
from bench.upstream import CHUNKS

BODIES = (1000, 10_000, 100_000, 1_000_000, 4_000_000)
CHUNKS_PER_S = 6000.0  # of all streams together, however many there are
FEW = 4  # connections for bodies and answers that are large: all under way are bounded


@dataclass(frozen=True)
class Axis:
    """One thing that there may be more of: how the policies, the call and the upstream follow from
    how much, and of which parts of a policy the cost is measured. ``counted`` counts functions as
    well. ``total`` calls are asked where a time alone would not do, which is where it is not 0."""

    title: str
    sizes: tuple[int, ...]
    parts: tuple[str, ...] = ("bare",)
    policies: Callable[[int], Sizes] = field(default=lambda size: NO_MORE)
    scenario: Callable[[int], Scenario] = field(default=lambda size: Scenario())
    upstream: Callable[[int], tuple[str, ...]] = field(default=lambda size: ())
    counted: bool = False
    total: Callable[[int], int] = field(default=lambda size: 0)


def _streams(size: int) -> Scenario:
    return Scenario(stream=True, connections=size)


def _slower(size: int) -> tuple[str, ...]:
    """Return what makes so many streams as many chunks a second as few have."""
    return (str(CHUNKS), f"{1000 * size / CHUNKS_PER_S:g}")


AXES = {
    "deployments": Axis(
        "deployments in the policies",
        (10, 100, 1000),
        policies=lambda size: Sizes(deployments=size),
        counted=True,
    ),
    "keys": Axis(
        "keys in the policies",
        (10, 1000, 100_000),
        policies=lambda size: Sizes(keys=size),
        counted=True,
    ),
    "rules": Axis(
        "rules of the deployment, of which two apply",
        (0, 50, 200, 500),
        policies=lambda size: Sizes(rules=size),
        counted=True,
    ),
    "tags": Axis(
        "tags of the call, beside three",
        (0, 8, 16, 32),
        parts=("bare", "everything"),
        policies=lambda size: Sizes(tags=size),
        counted=True,
    ),
    "streams": Axis(
        "streams open at once",
        (10, 100, 1000, 5000),
        parts=("bare", "everything"),
        scenario=_streams,
        upstream=_slower,
        total=lambda size: max(1000, size),
    ),
    "body": Axis(
        "bytes of the call",
        BODIES,
        parts=("bare", "everything"),
        scenario=lambda size: Scenario(size=size, connections=FEW),
    ),
    "answer": Axis(
        "bytes of the answer",
        BODIES,
        parts=("bare", "everything"),
        scenario=lambda size: Scenario(connections=FEW),
        upstream=lambda size: ("1", "1", str(size)),
    ),
}
"""Measured through whole processes. Kept answers are measured in the store itself."""
KEPT = (1000, 10_000, 100_000, 1_000_000)
"""How many answers the store of the cache has."""
