"""Measure the semantic cache and write it into docs/cache.md: `python -m tools.alike`.

The questions are pairs in tools/quality: those the lists of words were made on, and those written
before them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy.cache.fingerprint import fingerprint
from tools.docs import DOCS, written

PAGE = DOCS / "cache.md"
QUALITY = Path(__file__).parent / "quality"
SETS = {"seen": "the lists were made on", "unseen": "written before the lists"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions, of the kind ``same`` where one answer may serve both."""

    kind: str
    one: str
    other: str

    @property
    def same(self) -> bool:
        return self.kind == "same"

    @property
    def served(self) -> bool:
        return fingerprint(self.one, b"").same_as(fingerprint(self.other, b""))


def pairs(name: str) -> list[Pair]:
    lines = (QUALITY / f"alike_{name}.tsv").read_text("utf-8").splitlines()
    return [Pair(*line.split("\t")) for line in lines if not line.startswith("#")]


def table() -> Iterator[str]:
    yield "| pairs | same, served | other, served |"
    yield "|---|---|---|"
    for name, title in SETS.items():
        yield f"| {title} | {_served(name, same=True)} | {_served(name, same=False)} |"


def _served(name: str, *, same: bool) -> str:
    kind = [pair for pair in pairs(name) if pair.same is same]
    return f"{sum(pair.served for pair in kind)} of {len(kind)}"


def main() -> int:
    PAGE.write_text(written(PAGE.read_text("utf-8"), {"alike": table}), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
