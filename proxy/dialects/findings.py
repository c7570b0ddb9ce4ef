"""Guard findings in Enkrypt's and Portkey's formats.

Upstream guards report detections (Enkrypt) or hook results (Portkey) in responses and errors. Each
is converted into the client's format and joined with the results of the proxy's guards. Records and
errors get names and flags only, because details may quote the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from proxy.dialects.wire.strict_json import as_object, as_objects, as_text
from proxy.errors import UpstreamFinding
from proxy.types import Json
from proxy.types.detections import BuildDetails, DetectionFormat, DetectorFindings, get_counts
from proxy.types.events import Event, Extension
from proxy.types.guard import GuardResult, GuardResults, Stage

DETECTIONS_MEMBER, HOOKS_MEMBER = "enkrypt_policy_detections", "hook_results"
MAX_FINDINGS = 64
MAX_NAMES = 1024  # names read per stage
LOW_IS_BAD = frozenset({"on_topic", "adherence_score", "relevancy_score", "safe", "sfw"})
"""Detectors whose lower values mean worse texts."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/ -]{0,63}")
_STAGES: tuple[tuple[Stage, str, str], ...] = (
    ("input", "input_guardrails", "before_request_hooks"),
    ("output", "output_guardrails", "after_request_hooks"),
)


def read_upstream_findings(data: Json) -> tuple[UpstreamFinding, ...]:
    """Return the findings in an upstream's document, each detector of a stage once."""
    if DETECTIONS_MEMBER not in data and HOOKS_MEMBER not in data:
        return ()
    return merge_findings((*_read_enkrypt_detections(data), *_read_portkey_hooks(data)))


def merge_findings(findings: Iterable[UpstreamFinding]) -> tuple[UpstreamFinding, ...]:
    """Return findings with each detector of a stage once, at most ``MAX_FINDINGS``."""
    merged: dict[tuple[Stage, str], bool] = {}
    for finding in findings:
        key = finding.stage, finding.detector
        if key in merged or len(merged) < MAX_FINDINGS:
            merged[key] = merged.get(key, False) or finding.found
    return tuple(UpstreamFinding(s, detector, found) for (s, detector), found in merged.items())


def make_finding_events(doc: Json) -> list[Event]:
    """Return the findings in an upstream's document as they are."""
    return [Extension(name, doc[name]) for name in (DETECTIONS_MEMBER, HOOKS_MEMBER) if name in doc]


def has_upstream_finding(data: Json) -> bool:
    """Return True if a guard of the upstream has found something."""
    return any(finding.found for finding in read_upstream_findings(data))


def _read_enkrypt_detections(data: Json) -> Iterator[UpstreamFinding]:
    detections = as_object(data.get(DETECTIONS_MEMBER))
    for stage, name, _ in _STAGES:
        summary = as_object(as_object(detections.get(name)).get("summary"))
        for detector, value in islice(summary.items(), MAX_NAMES):
            if _NAME.fullmatch(detector):
                is_found = not value if detector in LOW_IS_BAD else bool(value)
                yield UpstreamFinding(stage, detector, is_found)


def _read_portkey_hooks(data: Json) -> Iterator[UpstreamFinding]:
    for stage, _, name in _STAGES:
        hooks = as_objects(as_object(data.get(HOOKS_MEMBER)).get(name))
        for hook in hooks[:MAX_NAMES]:
            detector = as_text(hook.get("id"))
            if _NAME.fullmatch(detector):
                yield UpstreamFinding(stage, detector, hook.get("verdict") is False)


# Upstream findings joined with results of the proxy's guards


def merge_enkrypt_detections(data: Json, found: Iterable[UpstreamFinding], results: Json) -> Json:
    """Return the upstream's detections and findings joined with the proxy's detections."""
    joined = dict(as_object(data.get(DETECTIONS_MEMBER)))
    findings = [*_read_portkey_hooks(data), *found]
    for stage, name, _ in _STAGES:
        summary = {item.detector: int(item.found) for item in findings if item.stage == stage}
        converted: Json = {"summary": summary, "details": {detector: {} for detector in summary}}
        parts = [as_object(joined.get(name)), converted, results[name]]
        joined[name] = {
            member: _merge_worst_values([as_object(part.get(member)) for part in parts])
            for member in ("summary", "details")
        }
    return joined


def merge_portkey_hooks(data: Json, found: Iterable[UpstreamFinding], results: Json) -> Json:
    """Return the upstream's hook results and findings, followed by the proxy's hooks."""
    joined = dict(as_object(data.get(HOOKS_MEMBER)))
    findings = [*_read_enkrypt_detections(data), *found]
    for stage, _, name in _STAGES:
        hooks, converted = joined.get(name), list[Json]()
        for finding in findings:
            if finding.stage == stage:
                detector, verdict = finding.detector, not finding.found
                check = {"verdict": verdict, "id": detector, "transformed": False}
                check |= {"data": {}, "execution_time": 0}
                converted.append(make_portkey_hook(detector, check, verdict=verdict))
        joined[name] = [*(hooks if isinstance(hooks, list) else ()), *converted, *results[name]]
    return joined


def make_portkey_hook(
    name: str, check: Json, *, verdict: bool, deny: bool = False, skip: bool = False
) -> Json:
    """Return a hook result with one check."""
    return {
        "verdict": verdict,
        "id": name,
        "type": "guardrail",
        "deny": deny,
        "async": False,
        "transformed": check["transformed"],
        "skipped": skip,
        "execution_time": check["execution_time"],
        "checks": [check],
    }


def _merge_worst_values(parts: Iterable[Json]) -> Json:
    """Merge mappings. Of several values with the same name, keep the worst."""
    joined: Json = {}
    for part in parts:
        for name, value in part.items():
            is_new = name not in joined
            joined[name] = value if is_new else _choose_worse_value(name, joined[name], value)
    return joined


def _choose_worse_value(name: str, value: Any, other_value: Any) -> Any:
    if isinstance(value, dict) and isinstance(other_value, dict):
        return _merge_worst_values([value, other_value])
    if isinstance(value, list) and isinstance(other_value, list):
        return [*value, *(item for item in other_value if item not in value)]
    one, two = _parse_number(value), _parse_number(other_value)
    if one is None or two is None:
        return other_value or value
    if one == two:
        return value
    return value if (one > two) is not (name in LOW_IS_BAD) else other_value


def _parse_number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, (bool, int, float, str)) else None
    except ValueError:
        return None


# Results of the proxy's guards as detections. Details count findings and never quote text.


def round_score(score: float) -> float:
    return round(score, 3)


def make_counts_details(member: str) -> BuildDetails:
    return lambda findings: {member: get_counts(findings)}


def make_inverse_score_details(member: str) -> BuildDetails:
    return lambda findings: {member: round_score(1 - findings.score)}


def make_flag_details(member: str) -> BuildDetails:
    return lambda findings: {member: bool(findings.findings)}


def build_similarity_details(findings: DetectorFindings) -> Json:
    return {"similarity_score": round_score(findings.score)}


def to_inverse_flag(findings: DetectorFindings) -> int:
    """Return 0 if there is a finding, otherwise 1, as in ``on_topic``, where 1 is good."""
    return 1 - findings.flag


_TOXICITY_LABELS = {"profanity": "obscene", "slur": "identity_hate"}


def _list_toxicity_labels(findings: DetectorFindings) -> list[str]:
    return [_TOXICITY_LABELS.get(kind, kind) for kind in sorted(findings.findings)]


def _build_toxicity_details(findings: DetectorFindings) -> Json:
    score = round_score(findings.score)
    return {"toxicity": score, **dict.fromkeys(_list_toxicity_labels(findings), score)}


TOXICITY = DetectionFormat(
    "toxicity", "toxicity", _build_toxicity_details, summary=_list_toxicity_labels
)
PII = DetectionFormat("pii", "pii", make_counts_details("pii"))
NO_FINDINGS = DetectorFindings({}, 0.0)


def drop_shadow_results(results: GuardResults) -> GuardResults:
    """Return the results that a client may see, without results of shadow policies."""
    return [(stage, result) for stage, result in results if not result.shadow]


def make_enkrypt_detections(results: GuardResults) -> Json:
    """Return guard results of both stages as Enkrypt's detections.

    A kind of guard without a format is a detector with its name. A guard that failed or did not
    apply has no detections.
    """
    return {
        f"{stage}_guardrails": _make_stage_detections(
            [result for result_stage, result in results if result_stage == stage]
        )
        for stage in ("input", "output")
    }


def _make_stage_detections(results: Iterable[GuardResult]) -> Json:
    by_kind: dict[str, DetectorFindings] = {}
    formats: dict[str, tuple[DetectionFormat, ...]] = {}
    for result in results:
        if result.verdict not in ("failed", "not_applicable"):
            kind = result.kind
            findings = DetectorFindings(result.findings, result.score)
            by_kind[kind] = _merge_detector_findings(by_kind.get(kind, NO_FINDINGS), findings)
            formats[kind] = result.detections or (DetectionFormat(kind, kind),)
    by_name: dict[str, DetectorFindings] = {}
    summary: Json = {}
    details: Json = {}
    for kind, detectors in formats.items():
        for detector in detectors:
            name, findings = detector.summary_name, by_kind[kind]
            by_name[name] = _merge_detector_findings(by_name.get(name, NO_FINDINGS), findings)
            summary[name] = detector.summary(by_name[name])
            details.setdefault(detector.name, {}).update(detector.details(findings))
    return {"summary": summary, "details": details}


def _merge_detector_findings(one: DetectorFindings, other: DetectorFindings) -> DetectorFindings:
    counts = Counter(one.findings) + Counter(other.findings)
    return DetectorFindings(counts, max(one.score, other.score))
