"""Guard findings in the format of Enkrypt's detectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.runtime.frozen import frozen


@frozen
class DetectorFindings:
    """Findings of all guards that count as one detector: counts by kind, and the highest score."""

    findings: Mapping[str, int]
    score: float

    @property
    def flag(self) -> int:
        return int(bool(self.findings))


BuildDetails = Callable[[DetectorFindings], dict[str, Any]]


def to_flag(findings: DetectorFindings) -> int:
    """Return 1 if there is a finding, otherwise 0."""
    return findings.flag


def get_counts(findings: DetectorFindings) -> dict[str, Any]:
    return dict(findings.findings)


@frozen
class DetectionFormat:
    """Format of a detector: ``details`` under ``name``, ``summary`` under ``summary_name``."""

    name: str
    summary_name: str
    details: BuildDetails = get_counts
    summary: Callable[[DetectorFindings], object] = to_flag
