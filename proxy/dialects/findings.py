"""What the guards of an upstream found: Enkrypt's detections and Portkey's hook results.

They stand in its answers beside the choices, and in its errors beside the error. A client of either
dialect reads them in its own words, joined with what our guards found. What is read of them for
records and errors are names and yes or no, never a text: a detail may quote what it has found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from proxy.dialects.detections import LESS_IS_WORSE
from proxy.errors import UpstreamFinding
from proxy.types import Json
from proxy.types.guard import Stage

DETECTIONS, HOOKS = "enkrypt_policy_detections", "hook_results"
MAX_FINDINGS = 64
MAX_NAMES = 1024  # of one stage that are looked at
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/ -]{0,63}")
_STAGES: tuple[tuple[Stage, str, str], ...] = (
    ("input", "input_guardrails", "before_request_hooks"),
    ("output", "output_guardrails", "after_request_hooks"),
)


def find_findings(data: Json) -> tuple[UpstreamFinding, ...]:
    """Return what an upstream's document says, each detector of a stage once; mostly nothing."""
    if DETECTIONS not in data and HOOKS not in data:
        return ()
    return merge_findings((*_detected(data), *_hooked(data)))


def merge_findings(findings: Iterable[UpstreamFinding]) -> tuple[UpstreamFinding, ...]:
    """Return each detector of a stage once, as having found something where it once did."""
    known: dict[tuple[Stage, str], bool] = {}
    for finding in findings:
        name = finding.stage, finding.detector
        if name in known or len(known) < MAX_FINDINGS:
            known[name] = known.get(name, False) or finding.found
    return tuple(
        UpstreamFinding(stage, detector, found) for (stage, detector), found in known.items()
    )


def is_flagged(data: Json) -> bool:
    """True if a guard of the upstream found something."""
    return any(item.found for item in find_findings(data))


def join_detections(data: Json, found: Iterable[UpstreamFinding], ours: Json) -> Json:
    """Return ours with what an upstream says in its document, and with what is ``found`` beside."""
    theirs = data.get(DETECTIONS)
    others = [*_hooked(data), *found]
    joined: Json = dict(theirs) if isinstance(theirs, dict) else {}
    for stage, name, _ in _STAGES:
        parts = [_mapping(joined, name), _in_summary(others, stage), ours[name]]
        joined[name] = {
            "summary": _worst([_mapping(part, "summary") for part in parts]),
            "details": _worst([_mapping(part, "details") for part in parts]),
        }
    return joined


def join_hooks(data: Json, found: Iterable[UpstreamFinding], ours: Json) -> Json:
    """Return ours after what an upstream says in its document, and what is ``found`` beside."""
    theirs = data.get(HOOKS)
    joined: Json = dict(theirs) if isinstance(theirs, dict) else {}
    others = [*_detected(data), *found]
    for stage, _, name in _STAGES:
        hooks = joined.get(name)
        of_stage = [_hook(item) for item in others if item.stage == stage]
        joined[name] = [*(hooks if isinstance(hooks, list) else ()), *of_stage, *ours[name]]
    return joined


def _mapping(data: Any, name: str) -> Json:
    value = data.get(name) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _detected(data: Json) -> Iterator[UpstreamFinding]:
    for stage, name, _ in _STAGES:
        summary = _mapping(_mapping(_mapping(data, DETECTIONS), name), "summary")
        for word, value in islice(summary.items(), MAX_NAMES):
            if _NAME.fullmatch(word):
                less = word in LESS_IS_WORSE
                yield UpstreamFinding(stage, word, not value if less else bool(value))


def _hooked(data: Json) -> Iterator[UpstreamFinding]:
    for stage, _, name in _STAGES:
        hooks = _mapping(data, HOOKS).get(name)
        for hook in islice(hooks if isinstance(hooks, list) else (), MAX_NAMES):
            known = hook.get("id") if isinstance(hook, dict) else None
            if isinstance(known, str) and _NAME.fullmatch(known):
                yield UpstreamFinding(stage, known, hook.get("verdict") is False)


def _in_summary(found: Iterable[UpstreamFinding], stage: Stage) -> Json:
    summary = {item.detector: int(item.found) for item in found if item.stage == stage}
    return {"summary": summary, "details": {word: {} for word in summary}}


def _hook(finding: UpstreamFinding) -> Json:
    check = {"id": finding.detector, "verdict": not finding.found, "data": {}}
    return {
        "verdict": not finding.found,
        "id": finding.detector,
        "type": "guardrail",
        "deny": False,
        "async": False,
        "transformed": False,
        "skipped": False,
        "execution_time": 0,
        "checks": [{**check, "transformed": False, "execution_time": 0}],
    }


def _worst(parts: Iterable[Json]) -> Json:
    """Join mappings; where several have a name, the value that speaks more against the call."""
    joined: Json = {}
    for part in parts:
        for name, value in part.items():
            joined[name] = _worse(name, joined[name], value) if name in joined else value
    return joined


def _worse(name: str, one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return _worst([one, other])
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *(item for item in other if item not in one)]
    sizes = _size(one), _size(other)
    if sizes[0] is None or sizes[1] is None:
        return other or one
    more = sizes[0] >= sizes[1]
    return one if more is not (name in LESS_IS_WORSE and sizes[0] != sizes[1]) else other


def _size(value: Any) -> float | None:
    """Return a number as one; some are written as words."""
    try:
        return float(value) if isinstance(value, (bool, int, float, str)) else None
    except ValueError:
        return None
