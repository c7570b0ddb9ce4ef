"""An explanation as a value, and its two forms: JSON for machines, a tree for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.frozen import frozen


@frozen
class Reason:
    """One decision: what it is about, what was decided, why, and at which ``file:line``."""

    about: str
    decided: str
    why: str | None = None
    at: str | None = None
    parts: tuple[Reason, ...] = ()

    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = {"about": self.about, "decided": self.decided}
        if self.why is not None:
            data["why"] = self.why
        if self.at is not None:
            data["at"] = self.at
        if self.parts:
            data["parts"] = [part.data() for part in self.parts]
        return data

    def line(self, heading: str = "") -> str:
        """Return one line of text. Below a heading such as ``rules``, ``rule:`` is left out."""
        about = "" if f"{self.about}s" == heading else f"{self.about}: "
        why = f" ({self.why})" if self.why else ""
        at = f"  [{self.at}]" if self.at else ""
        return f"{about}{self.decided}{why}{at}"


@frozen
class CallExplanation:
    """All decisions of one call, in the order in which they are made."""

    revision: str
    reasons: tuple[Reason, ...]

    def data(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "decisions": [reason.data() for reason in self.reasons],
        }

    def text(self) -> str:
        return "\n".join([f"policy revision {self.revision}", *_tree(self.reasons, "")])


def _tree(reasons: Sequence[Reason], indent: str, heading: str = "") -> Iterator[str]:
    for number, reason in enumerate(reasons, start=1):
        last = number == len(reasons)
        yield f"{indent}{'└─' if last else '├─'} {reason.line(heading)}"
        yield from _tree(reason.parts, f"{indent}{'  ' if last else '│ '} ", reason.about)
