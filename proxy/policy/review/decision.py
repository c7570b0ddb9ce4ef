"""Decisions on a call for people and programs: a tree of text, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from proxy.runtime.frozen import frozen

DecisionState = Literal["applied", "not_applied", "shadow", "refused"]
"""Effect of a decision on the call. ``refused`` also means that the call or an attempt failed."""


@frozen
class Decision:
    """A decision: its subject, its result, the reason, and the ``file:line`` that declares it."""

    subject: str
    result: str
    reason: str | None = None
    source: str | None = None
    parts: tuple[Decision, ...] = ()
    state: DecisionState = "applied"

    def to_json(self) -> dict[str, Any]:
        data = {"about": self.subject, "decided": self.result, "why": self.reason}
        data |= {"at": self.source, "state": self.state}
        parts = {"parts": [part.to_json() for part in self.parts]} if self.parts else {}
        return {name: value for name, value in data.items() if value is not None} | parts

    def format_line(self, parent_subject: str = "") -> str:
        """Return one line of text. Below ``rules``, the subject ``rule`` is omitted."""
        subject = "" if f"{self.subject}s" == parent_subject else f"{self.subject}: "
        reason = f" ({self.reason})" if self.reason else ""
        source = f"  [{self.source}]" if self.source else ""
        return f"{subject}{self.result}{reason}{source}"


@frozen
class CallExplanation:
    """All decisions on a call, in the order in which they are made."""

    revision: str
    decisions: tuple[Decision, ...]

    def to_json(self) -> dict[str, Any]:
        decisions = [decision.to_json() for decision in self.decisions]
        return {"revision": self.revision, "decisions": decisions}

    def format_tree(self) -> str:
        return "\n".join([f"policy revision {self.revision}", *_draw_tree(self.decisions, "")])


def _draw_tree(
    decisions: Sequence[Decision], indent: str, parent_subject: str = ""
) -> Iterator[str]:
    for number, decision in enumerate(decisions, start=1):
        is_last = number == len(decisions)
        yield f"{indent}{'└─' if is_last else '├─'} {decision.format_line(parent_subject)}"
        yield from _draw_tree(
            decision.parts, f"{indent}{'  ' if is_last else '│ '} ", decision.subject
        )


def group_decisions(subject: str, text: str, parts: Sequence[Decision]) -> Decision:
    return Decision(subject, text, parts=tuple(parts), state="applied" if parts else "not_applied")
