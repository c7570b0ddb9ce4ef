"""Measure the semantic cache and write it into docs/cache.md: `python -m tools.alike`.

The questions are pairs in tools/quality: those the gate was made on, and those written before it.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proxy.cache.fingerprint import fingerprint
from proxy.embedding.model import PACKAGED, EmbeddingModel, load
from proxy.ports import Vector
from proxy.types import Semantic
from tools.docs import DOCS, written

PAGE = DOCS / "cache.md"
QUALITY = Path(__file__).parent / "quality"
SETS = {"seen": "the gate was made on", "unseen": "written before the gate"}
THRESHOLDS = (0.8, 0.85, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions, of the kind ``same`` where one answer may serve both."""

    kind: str
    one: str
    other: str

    @property
    def same(self) -> bool:
        return self.kind == "same"


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair, how near its vectors are, and whether the gate lets it pass."""

    pair: Pair
    likeness: float
    passes: bool

    def served(self, threshold: float) -> bool:
        return self.passes and self.likeness >= threshold


def pairs(name: str) -> list[Pair]:
    lines = (QUALITY / f"alike_{name}.tsv").read_text("utf-8").splitlines()
    return [Pair(*line.split("\t")) for line in lines if not line.startswith("#")]


def judged(pair: Pair, model: EmbeddingModel) -> Judged:
    one, other = (fingerprint(text, b"") for text in (pair.one, pair.other))
    likeness = product(model.vector(pair.one), model.vector(pair.other))
    return Judged(pair, likeness, one.same_as(other))


def product(one: Vector | None, other: Vector | None) -> float:
    """Give how near two vectors are; what has none is near nothing."""
    if one is None or other is None:
        return 0.0
    return sum(a * b for a, b in zip(array("f", one), array("f", other), strict=True))


def table(model: EmbeddingModel) -> Iterator[str]:
    yield "| pairs | likeness from | same, served | other, served | same, near | other, near |"
    yield "|---|---|---|---|---|---|"
    for name, said in SETS.items():
        all_ = [judged(pair, model) for pair in pairs(name)]
        for threshold in THRESHOLDS:
            default = ", the default" if threshold == Semantic().threshold else ""
            served, near = (
                [_share(all_, same=same, served=does) for same in (True, False)]
                for does in (partial(Judged.served, threshold=threshold), partial(_near, threshold))
            )
            yield " | ".join(("| " + said, f"{threshold:g}{default}", *served, *near)) + " |"


def _near(threshold: float, each: Judged) -> bool:
    return each.likeness >= threshold


def _share(all_: Sequence[Judged], *, same: bool, served: Callable[[Judged], bool]) -> str:
    of = [each for each in all_ if each.pair.same is same]
    return f"{sum(map(served, of))} of {len(of)}"


def main() -> int:
    model = load(PACKAGED)
    PAGE.write_text(written(PAGE.read_text("utf-8"), {"alike": lambda: table(model)}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
