"""What guards said of a call, in the words of Enkrypt's detections: a summary, and details.

Each kind of guard brings its words, whatever a guard's name in the policy; a kind that Enkrypt has
no word for keeps its own. A guard that saw nothing, or could not tell, claims nothing here.
There is no text in it: of keywords and identifiers it says how many of which kind.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.types import Json
from proxy.types.detections import Details, DetectionFormat, DetectorFindings, counts
from proxy.types.guard import GuardResult, GuardResults


def share(score: float) -> float:
    return round(score, 3)


def counted(word: str) -> Details:
    return lambda found: {word: counts(found)}


def inverse(word: str) -> Details:
    return lambda found: {word: share(1 - found.score)}


def yes(word: str) -> Details:
    return lambda found: {word: bool(found.findings)}


def similarity(found: DetectorFindings) -> Json:
    return {"similarity_score": share(found.score)}


def _labels(found: DetectorFindings) -> list[str]:
    return [_TOXIC.get(kind, kind) for kind in sorted(found.findings)]


def _toxicity(found: DetectorFindings) -> Json:
    return {"toxicity": share(found.score), **dict.fromkeys(_labels(found), share(found.score))}


def none_found(found: DetectorFindings) -> int:
    return 1 - found.any


_TOXIC = {"profanity": "obscene", "slur": "identity_hate"}
TOXICITY = DetectionFormat("toxicity", "toxicity", _toxicity, summary=_labels)
PII = DetectionFormat("pii", "pii", counted("pii"))
"""Words that several kinds share; the others stand with their kinds."""


LESS_IS_WORSE = frozenset({"on_topic", "adherence_score", "relevancy_score", "safe", "sfw"})
"""The words whose value is the smaller, the more speaks against a call."""


def _own(kind: str) -> tuple[DetectionFormat, ...]:
    return (DetectionFormat(kind, kind),)


def detections(verdicts: GuardResults) -> Json:
    """Return the detections of an answer, or of an error, for input and output; a stage is empty
    where no guard has looked at anything."""
    return {
        f"{stage}_guardrails": _of_stage([result for at, result in verdicts if at == stage])
        for stage in ("input", "output")
    }


def _of_stage(results: Iterable[GuardResult]) -> Json:
    by_kind: dict[str, DetectorFindings] = {}
    formats: dict[str, tuple[DetectionFormat, ...]] = {}
    for result in results:
        if result.verdict not in ("failed", "not_applicable"):
            found = DetectorFindings(result.findings, result.score)
            by_kind[result.kind] = _together(by_kind.get(result.kind), found)
            formats[result.kind] = result.detections or _own(result.kind)
    by_word: dict[str, tuple[DetectorFindings, DetectionFormat]] = {}
    details: Json = {}
    for kind, found in by_kind.items():
        for detector in formats[kind]:
            known, _ = by_word.get(detector.word, (None, detector))
            by_word[detector.word] = _together(known, found), detector
            details[detector.name] = {**details.get(detector.name, {}), **detector.details(found)}
    return {
        "summary": {word: detector.summary(found) for word, (found, detector) in by_word.items()},
        "details": details,
    }


def _together(known: DetectorFindings | None, found: DetectorFindings) -> DetectorFindings:
    if known is None:
        return found
    together = dict(known.findings)
    for kind, count in found.findings.items():
        together[kind] = together.get(kind, 0) + count
    return DetectorFindings(together, max(known.score, found.score))
