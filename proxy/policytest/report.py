"""Report of a run of policy tests, as text or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import orjson

from proxy.frozen import frozen


@frozen
class CaseResult:
    """Result of one test: its name, its place, and each difference from what it expects."""

    name: str
    at: str
    differences: tuple[str, ...]


@frozen
class CoveredPart:
    """A rule or a deployment, and whether any test used it."""

    kind: str
    name: str
    at: str
    covered: bool


@frozen
class Report:
    """Results of all tests, and which parts of the policies they cover."""

    results: tuple[CaseResult, ...]
    parts: tuple[CoveredPart, ...]

    @property
    def failed(self) -> int:
        return sum(bool(result.differences) for result in self.results)

    @property
    def coverage(self) -> int:
        """Percentage of rules and deployments that a test used, rounded down; 100 if there are
        none."""
        return 100 * sum(part.covered for part in self.parts) // max(1, len(self.parts))

    def lines(self) -> Iterator[str]:
        for result in self.results:
            if result.differences:
                yield f"FAILED {result.at}: {result.name}"
                yield from (f"    {difference}" for difference in result.differences)
        missed = [part for part in self.parts if not part.covered]
        yield from (f"not covered: {part.kind} {part.name} ({part.at})" for part in missed)
        covered = len(self.parts) - len(missed)
        yield f"{covered} of {len(self.parts)} rules and deployments covered ({self.coverage}%)"
        yield f"{len(self.results) - self.failed} passed, {self.failed} failed"


def as_text(report: Report) -> str:
    return "\n".join(report.lines())


def as_json(report: Report) -> str:
    """Return an object: ``tests`` with their differences, ``parts`` with their coverage."""
    counts = {"failed": report.failed, "coverage_percent": report.coverage}
    data = {**counts, "tests": report.results, "parts": report.parts}
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


FORMS: dict[str, Callable[[Report], str]] = {"text": as_text, "json": as_json}
