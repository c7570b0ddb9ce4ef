"""What guards said of a call, in the words of Enkrypt's detections: a summary, and details.

Detectors are told by the kind of the guard, whatever its name in the policy; a kind that Enkrypt
has no word for keeps its own. A guard that saw nothing, or could not tell, claims nothing here.
There is no text in it: of keywords and identifiers it says how many of which kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from proxy.types import Json
from proxy.types.guard import GuardResult, Verdicts


@dataclass(frozen=True, slots=True)
class DetectorFindings:
    """All that the guards of one detector found: how often, by kind, and how surely at most."""

    findings: Mapping[str, int]
    score: float

    @property
    def any(self) -> int:
        return int(bool(self.findings))


Say = Callable[[DetectorFindings], object]
Details = Callable[[DetectorFindings], Json]


@dataclass(frozen=True, slots=True)
class DetectionFormat:
    """A detector's name in details, the word of its summary, and how both are filled."""

    name: str
    summary: tuple[str, Say]
    details: Details


def _counts(found: DetectorFindings) -> Json:
    return dict(found.findings)


def _share(score: float) -> float:
    return round(score, 3)


def _yes(word: str) -> Details:
    return lambda found: {word: bool(found.findings)}


def _similarity(found: DetectorFindings) -> Json:
    return {"similarity_score": _share(found.score)}


def _labels(found: DetectorFindings) -> list[str]:
    return [_TOXIC.get(kind, kind) for kind in sorted(found.findings)]


def _toxicity(found: DetectorFindings) -> Json:
    return {"toxicity": _share(found.score), **dict.fromkeys(_labels(found), _share(found.score))}


def _attack(found: DetectorFindings) -> Json:
    return {"safe": f"{1 - found.score:.3f}", "attack": f"{found.score:.3f}"}


def _flag(found: DetectorFindings) -> int:
    return found.any


def _good(found: DetectorFindings) -> int:
    return 1 - found.any


_TOXIC = {"profanity": "obscene", "slur": "identity_hate"}
_TOPIC = DetectionFormat("topic_detector", ("on_topic", _good), _counts)
_NSFW = DetectionFormat(
    "nsfw",
    ("nsfw", _flag),
    lambda found: {"sfw": _share(1 - found.score), "nsfw": _share(found.score)},
)
_TOXICITY = DetectionFormat("toxicity", ("toxicity", _labels), _toxicity)
_PII = DetectionFormat("pii", ("pii", _flag), lambda found: {"pii": _counts(found)})
_SECRETS = DetectionFormat("pii", ("pii", _flag), lambda found: {"secrets": _counts(found)})
_ATTACK = DetectionFormat("injection_attack", ("injection_attack", _flag), _attack)
_KEYWORDS = DetectionFormat(
    "keyword_detector",
    ("keyword_detected", _flag),
    lambda found: {"detected_counts": _counts(found)},
)
_POLICY = DetectionFormat(
    "policy_violation",
    ("policy_violation", _flag),
    lambda found: {"violating_policy": ", ".join(sorted(found.findings)) or None},
)
_BIAS = DetectionFormat("bias", ("bias", _flag), _yes("bias_detected"))
_PROMPT = DetectionFormat("system_prompt", ("system_prompt_similarity", _flag), _similarity)
_COPYRIGHT = DetectionFormat("copyright_ip", ("copyright_ip_similarity", _flag), _similarity)
_SPONGE = DetectionFormat("sponge_attack", ("sponge_attack", _flag), _yes("sponge_attack_detected"))
_HALLUCINATION = DetectionFormat(
    "hallucination", ("is_hallucination", _flag), lambda found: {"is_hallucination": found.any}
)
_ADHERENCE = DetectionFormat(
    "adherence",
    ("adherence_score", _good),
    lambda found: {"adherence_score": _share(1 - found.score)},
)
_RELEVANCY = DetectionFormat(
    "relevancy",
    ("relevancy_score", _good),
    lambda found: {"relevancy_score": _share(1 - found.score)},
)

DETECTORS: Mapping[str, tuple[DetectionFormat, ...]] = {
    "topic": (_TOPIC,),
    "nsfw": (_NSFW,),
    "toxicity": (_TOXICITY,),
    "moderation": (_TOXICITY,),
    "pii": (_PII,),
    "presidio": (_PII,),
    "secrets": (_SECRETS,),
    "injection": (_ATTACK,),
    "keywords": (_KEYWORDS,),
    "policy_violation": (_POLICY,),
    "bias": (_BIAS,),
    "system_prompt": (_PROMPT,),
    "copyright": (_COPYRIGHT,),
    "sponge": (_SPONGE,),
    "grounded": (_HALLUCINATION, _ADHERENCE),
    "relevant": (_RELEVANCY,),
}
"""Enkrypt's detectors, by the kind of guard that does their work."""


LESS_IS_WORSE = frozenset({"on_topic", "adherence_score", "relevancy_score", "safe", "sfw"})
"""The words whose value is the smaller, the more speaks against a call."""


def _own(kind: str) -> tuple[DetectionFormat, ...]:
    return (DetectionFormat(kind, (kind, _flag), _counts),)


def detections(verdicts: Verdicts) -> Json:
    """Return the detections of an answer, or of an error, for input and output; a stage is empty
    where no guard has looked at anything."""
    return {
        f"{stage}_guardrails": _of_stage([result for at, result in verdicts if at == stage])
        for stage in ("input", "output")
    }


def _of_stage(results: Iterable[GuardResult]) -> Json:
    by_kind: dict[str, DetectorFindings] = {}
    for result in results:
        if result.verdict not in ("failed", "unseen"):
            found = DetectorFindings(result.findings, result.score)
            by_kind[result.kind] = _together(by_kind.get(result.kind), found)
    by_word: dict[str, tuple[DetectorFindings, Say]] = {}
    details: Json = {}
    for kind, found in by_kind.items():
        for detector in DETECTORS.get(kind) or _own(kind):
            word, say = detector.summary
            known, _ = by_word.get(word, (None, say))
            by_word[word] = _together(known, found), say
            details[detector.name] = {**details.get(detector.name, {}), **detector.details(found)}
    return {
        "summary": {word: say(found) for word, (found, say) in by_word.items()},
        "details": details,
    }


def _together(known: DetectorFindings | None, found: DetectorFindings) -> DetectorFindings:
    if known is None:
        return found
    counts = dict(known.findings)
    for kind, count in found.findings.items():
        counts[kind] = counts.get(kind, 0) + count
    return DetectorFindings(counts, max(known.score, found.score))
