"""Targets that serve a name, and the choice among them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from proxy.runtime.frozen import frozen
from proxy.types import Call, Target


@frozen
class Candidates:
    """Targets that can serve the same model name.

    With ``weights`` a random draw chooses the target. If ``is_balanced``, the least loaded target
    serves a call. Otherwise the first target serves all calls.
    """

    targets: tuple[Target, ...]
    weights: tuple[int, ...] = ()
    """Weights of the targets, both sorted by falling weight, or an empty tuple."""
    is_balanced: bool = False
    order: tuple[Target, ...] | None = field(init=False, repr=False, compare=False)
    """Targets to try if no draw decides. None if one does."""
    pool_size: int = field(init=False, repr=False, compare=False)
    """Number of balanced targets at the start of ``order``, otherwise 1."""

    def __post_init__(self) -> None:
        order = self.targets if self.is_balanced else self.targets[:1]
        object.__setattr__(self, "order", None if self.has_random_draw else order)
        object.__setattr__(self, "pool_size", len(self.targets) if self.is_balanced else 1)

    @property
    def active_targets(self) -> tuple[Target, ...]:
        """Targets that get calls, which excludes weight 0."""
        if not self.weights:
            return self.targets
        return tuple([t for t, weight in zip(self.targets, self.weights, strict=True) if weight])

    @property
    def has_random_draw(self) -> bool:
        """True if a draw decides."""
        return not self.is_balanced and sum(self.weights) > 0

    def draw_order(self, number: int) -> tuple[Target, ...]:
        """Return the drawn target, then the others. Targets of weight 0 are never tried.

        ``number`` is uniform and has many more bits than the sum of weights.
        """
        point, index = number % sum(self.weights), 0
        while point >= self.weights[index]:
            point -= self.weights[index]
            index += 1
        rest_of_targets = (t for i, t in enumerate(self.targets) if i != index and self.weights[i])
        return (self.targets[index], *rest_of_targets)


@frozen
class Routes:
    """The targets of a deployment or a rule in declared order, and the candidates by model."""

    targets: tuple[Target, ...]
    candidates: Candidates
    by_model: Mapping[str, Candidates]
    has_random_draw: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        has_random_draw = any(c.has_random_draw for c in (self.candidates, *self.by_model.values()))
        object.__setattr__(self, "has_random_draw", has_random_draw)


@frozen
class StickyRouting:
    """Keeps calls with the same key, user or value of ``header`` at one target."""

    by: Literal["key", "user", "header"]
    header: str = ""

    def get_sticky_value(self, key: str, call: Call) -> str | None:
        """Return the shared value of a call, or None if it has none."""
        if self.by == "key":
            return key
        if self.by == "header":
            return call.head.headers.get(self.header)
        user = call.head.user or call.body.get("user")
        return str(user) if user else None


def draw_routing_number(deployment: str, sticky: StickyRouting | None, key: str, call: Call) -> int:
    """Return a uniform 128-bit number, the same for calls that stay at one target.

    Clients can influence it only by their user name and by a header that the policy names.
    """
    value = (sticky and sticky.get_sticky_value(key, call)) or call.head.call_id
    text = f"{deployment}\0{value}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())
