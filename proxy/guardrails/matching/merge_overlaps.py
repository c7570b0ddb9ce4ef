"""Findings that overlap, put apart: none is lost where it alone says something."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace

from proxy.types.guard import Finding


def apart(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, by their start, that cover the same characters without overlaps.

    Where two compete the higher score wins, then the earlier, then the longer; what juts out of
    the loser stays, shortened. So a mask leaves nothing out that any of them found.
    """
    waiting: list[tuple[int, float, int, str, Finding]] = []
    kept: list[Finding] = []

    def wait(finding: Finding) -> None:
        if finding.start < finding.end:
            entry = (finding.start, -finding.score, -finding.end, finding.kind, finding)
            heapq.heappush(waiting, entry)

    for finding in findings:
        wait(finding)
    while waiting:
        *_, next_one = heapq.heappop(waiting)
        if not kept or kept[-1].end <= next_one.start:
            kept.append(next_one)
            continue
        last = kept[-1]
        if next_one.score <= last.score:
            wait(replace(next_one, start=max(last.end, next_one.start)))
            continue
        kept.pop()
        if last.start < next_one.start:
            kept.append(replace(last, end=next_one.start))
        kept.append(next_one)
        wait(replace(last, start=next_one.end))
    return kept
