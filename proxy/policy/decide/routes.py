"""Where calls may go: targets that serve a name, and how one of them is chosen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from proxy.frozen import frozen
from proxy.types import Call, Target


@frozen
class Candidates:
    """Targets that can serve the same name.

    With ``weights`` both are in falling order of weight, and one is drawn. Where they are
    ``balanced`` all are as good as each other. Otherwise the first always serves. ``fixed`` is the
    order where no draw decides; the first ``pool`` in it are as good as each other.
    """

    targets: tuple[Target, ...]
    weights: tuple[int, ...] = ()
    balanced: bool = False
    fixed: tuple[Target, ...] | None = field(init=False, repr=False, compare=False)
    pool: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out once what needs no draw."""
        fixed = self.targets if self.balanced else self.targets[:1]
        object.__setattr__(self, "fixed", None if self.drawn else fixed)
        object.__setattr__(self, "pool", len(self.targets) if self.balanced else 1)

    @property
    def active(self) -> tuple[Target, ...]:
        """The targets that take calls: all but those of weight 0."""
        if not self.weights:
            return self.targets
        return tuple([t for t, weight in zip(self.targets, self.weights, strict=True) if weight])

    @property
    def drawn(self) -> bool:
        """Whether a draw decides."""
        return not self.balanced and sum(self.weights) > 0

    def order(self, draw: int) -> tuple[Target, ...]:
        """Return the target that is drawn, then the others; one of weight 0 is never tried.

        ``draw`` is an even number of many more bits than the sum of weights.
        """
        point = draw % sum(self.weights)
        drawn = 0
        while point >= self.weights[drawn]:
            point -= self.weights[drawn]
            drawn += 1
        others = (t for i, t in enumerate(self.targets) if i != drawn and self.weights[i])
        return (self.targets[drawn], *others)


@frozen
class Routes:
    """All targets of a deployment or a rule, in the order in which they are written. ``serves``
    gives the candidates for a model's name."""

    targets: tuple[Target, ...]
    candidates: Candidates
    serves: Mapping[str, Candidates]
    drawn: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Note whether a draw decides for any name."""
        every = (self.candidates, *self.serves.values())
        object.__setattr__(self, "drawn", any(each.drawn for each in every))


@frozen
class Sticky:
    """Whose calls stay with one target; ``header`` names the one where it is a header's value."""

    by: Literal["key", "user", "header"]
    header: str = ""

    def seed(self, key: str, call: Call) -> str | None:
        """Return the same text for all calls that stay together; None where the call has none."""
        if self.by == "key":
            return key
        if self.by == "header":
            return call.head.headers.get(self.header)
        user = call.head.user or call.body.get("user")
        return str(user) if user else None


def draw(deployment: str, sticky: Sticky | None, key: str, call: Call) -> int:
    """Draw a number that decides by weight: new for each call, but for those that stay together.

    What a client sends cannot steer it, save the name of its user or a header the policy names.
    """
    seed = (sticky and sticky.seed(key, call)) or call.head.nonce
    text = f"{deployment}\0{seed}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())
