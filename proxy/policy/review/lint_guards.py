"""Warnings and notes of ``headrace check`` about guards.

They cover guard calls that are not inspected or not encrypted, requests that guards cannot inspect,
unstable placeholders, and the delay that guards add to streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from proxy.config.scalars import iter_references
from proxy.errors.words import join_names, quote
from proxy.guards.stream.word_scanner import MIN_LOOKBACK
from proxy.policy import schema
from proxy.policy.catalog import iter_guard_and_called_deployment
from proxy.policy.compile.deployments import DEFAULT_POLICY
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.source import Finding
from proxy.policy.review.explain import rejects_opaque_content
from proxy.types.guard import (
    Detector,
    GuardRule,
    PromptContext,
    is_contextual,
    is_detector,
    is_service,
)
from proxy.types.partial_matcher import get_partial_matcher

CHARACTERS_PER_WORD = 6
"""Average number of characters per word, including the space."""
SAMPLE_CONTEXT = PromptContext("an example of a system prompt", "an example", "an example")


def lint_guard_calls(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[Finding]:
    calls = {
        name: {target for _, target in iter_guard_and_called_deployment(deployment)}
        for name, deployment in snapshot.deployments.items()
    }
    guards = (
        ((*path, stage, index), guard)
        for path, part in policies.iter_parts()
        for stage in ("input", "output")
        for index, guard in enumerate(getattr(part, stage, None) or ())
    )
    for path, guard in guards:
        for key, name in iter_references(guard, "deployment"):
            if _has_call_cycle(calls, name):
                message = f"deployment {quote(name)} has guards that call the same deployment. "
                yield (*path, key), f"{message}Calls made by guards are not inspected."
        for key, url in iter_references(guard, "service"):
            if is_unencrypted(url):
                yield (*path, key), "does not use https: all texts are sent unencrypted"


def _has_call_cycle(calls: Mapping[str, set[str]], start: str) -> bool:
    """Return True if the guards of a deployment call it, directly or through other guards."""
    reached: set[str] = set()
    pending = [start]
    while pending:
        names = calls.get(pending.pop(), set()) - reached
        reached |= names
        pending += names
    return start in reached


def is_unencrypted(url: str) -> bool:
    """Return True if requests to a URL are unencrypted and leave this machine."""
    parts = urlsplit(url)
    is_local = (parts.hostname or "").startswith(("127.", "localhost", "::1"))
    return parts.scheme == "http" and not is_local


def iter_rejected_media_notes(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[str]:
    """Yield a note on deployments that reject images, audio and files without ``opaque``."""
    names = []
    for name, deployment in snapshot.deployments.items():
        policy = policies.policies.get(policies.deployments[name].policy or DEFAULT_POLICY)
        is_set = policy is not None and "opaque" in policy.model_fields_set
        if rejects_opaque_content(deployment.guards) and not is_set:
            names.append(name)
    if names:
        yield (
            f"{join_names(names)}: requests with images, audio or files are rejected, because "
            'guards cannot inspect them. Set "opaque: allow" in the policy to accept them.'
        )


def iter_random_placeholder_notes(snapshot: Snapshot, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a note on deployments that restore values without a secret for stable placeholders."""
    names = [name for name, d in snapshot.deployments.items() if d.guards.input_stage.restores]
    if names and not (environ.get("HEADRACE_SECRET") or environ.get("HEADRACE_ID_SECRET")):
        yield (
            f"{join_names(names)}: placeholders of restored values differ between processes, which "
            "costs cached tokens at providers. Set HEADRACE_SECRET to keep them."
        )


def iter_stream_delay_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note on each output guard that withholds streamed text, and on the total delay.

    Guards of rules are not included.
    """
    for name, deployment in snapshot.deployments.items():
        rules = [rule for rule in deployment.guards.output if rule.enforces]
        detectors = [(rule.name, _find_stream_detector(rule)) for rule in rules]
        for guard, detector in detectors:
            yield f"{name}: output guard {guard} withholds {_describe_withheld_text(detector)}"
        if rules:
            delay = _format_delay(detectors)
            yield f"{name}: streamed responses are delayed {delay}"


def _describe_withheld_text(detector: Detector | None) -> str:
    if detector is None:
        return "streamed responses until they are complete"
    lookback = detector.lookback
    if (
        get_partial_matcher(detector) is not None
        and lookback is not None
        and lookback > MIN_LOOKBACK
    ):
        return f"text that may become a finding, up to {lookback} characters"
    return f"the last {lookback} characters of streamed text"


def _format_delay(detectors: Sequence[tuple[str, Detector | None]]) -> str:
    if waiting := [name for name, detector in detectors if detector is None]:
        return f"until they are complete, because of {', '.join(waiting)}"
    lookbacks = {
        name: detector.lookback or 0
        for name, detector in detectors
        if detector is not None and get_partial_matcher(detector) is None
    }
    if not lookbacks:
        return "by one or two words, and for longer only where text may become a finding"
    words = -(-max(lookbacks.values()) // CHARACTERS_PER_WORD)
    return f"by about {words} words, because of {', '.join(lookbacks)}"


def _find_stream_detector(rule: GuardRule) -> Detector | None:
    """Return the detector that inspects a stream while it runs, or None if it waits for the end."""
    detector = rule.detector
    if is_contextual(detector):
        detector = detector.for_prompt(SAMPLE_CONTEXT) or detector
    if rule.action == "retry" or is_service(detector) or not is_detector(detector):
        return None
    return detector if detector.lookback is not None else None
