"""How what guards found is put in Enkrypt's words: one value for each of its detectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.runtime.frozen import frozen


@frozen
class DetectorFindings:
    """All that the guards of one detector found: how often, by kind, and how surely at most."""

    findings: Mapping[str, int]
    score: float

    @property
    def any(self) -> int:
        return int(bool(self.findings))


Details = Callable[[DetectorFindings], dict[str, Any]]


def any_found(found: DetectorFindings) -> int:
    return found.any


def counts(found: DetectorFindings) -> dict[str, Any]:
    return dict(found.findings)


@frozen
class DetectionFormat:
    """A detector: its name in ``details``, the word of its summary, and how both are filled."""

    name: str
    word: str
    details: Details = counts
    summary: Callable[[DetectorFindings], object] = any_found
