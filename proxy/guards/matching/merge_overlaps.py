"""Resolves overlaps of findings while keeping every character covered."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from proxy.types.guard import Finding


def resolve_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by their start that cover the same characters without overlaps.

    The higher score wins, then the earlier, then the longer finding. The uncovered rest of the
    other finding is kept, so that a mask hides everything.
    """
    pending: list[tuple[int, float, int, str, Finding]] = []
    result: list[Finding] = []

    def push(finding: Finding) -> None:
        if finding.start < finding.end:
            entry = (finding.start, -finding.score, -finding.end, finding.kind, finding)
            heapq.heappush(pending, entry)

    for finding in findings:
        push(finding)
    while pending:
        *_, current = heapq.heappop(pending)
        if not result or result[-1].end <= current.start:
            result.append(current)
            continue
        previous = result[-1]
        if current.score <= previous.score:
            push(replace(current, start=max(previous.end, current.start)))
            continue
        result.pop()
        if previous.start < current.start:
            result.append(replace(previous, end=current.start))
        result.append(current)
        push(replace(previous, start=current.end))
    return result
