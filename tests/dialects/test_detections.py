"""Verdicts as Enkrypt's detections: which word for which guard, and nothing claimed unseen."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.findings import detections
from proxy.guards.kinds.table import KINDS
from proxy.types.guard import GuardResult, Stage
from tests.for_each import for_each

# Enkrypt's own words, as its API reference has them.
NAMES = {
    "topic_detector", "nsfw", "toxicity", "pii", "injection_attack", "keyword_detector",
    "policy_violation", "bias", "system_prompt", "copyright_ip", "sponge_attack",
    "hallucination", "adherence", "relevancy",
}  # fmt: skip


def said(
    kind: str, score: float = 0.0, *, stage: Stage = "input", verdict: Any = None, **results: int
) -> tuple[Stage, GuardResult]:
    verdict = verdict or ("flagged" if results else "passed")
    result = GuardResult(
        "its name", verdict, False, results, score, 10, 1, 0.0, kind=kind, action="flag"
    )
    return stage, result._replace(detections=KINDS[kind].detections)


def test_every_detector_of_theirs_has_a_guard() -> None:
    assert {detection.name for kind in KINDS.values() for detection in kind.detections} == NAMES


@for_each(
    ("verdict", "summary", "details"),
    [
        (said("topic", 0.9, off_topic=1), {"on_topic": 0}, {"topic_detector": {"off_topic": 1}}),
        (said("topic"), {"on_topic": 1}, {"topic_detector": {}}),
        (said("nsfw", 0.75, sexual=1), {"nsfw": 1}, {"nsfw": {"sfw": 0.25, "nsfw": 0.75}}),
        (
            said("toxicity", 0.6, insult=1, slur=2),
            {"toxicity": ["insult", "identity_hate"]},
            {"toxicity": {"toxicity": 0.6, "insult": 0.6, "identity_hate": 0.6}},
        ),
        (said("pii", 1.0, email=2), {"pii": 1}, {"pii": {"pii": {"email": 2}}}),
        (
            said("injection", 0.97, model=1),
            {"injection_attack": 1},
            {"injection_attack": {"safe": "0.030", "attack": "0.970"}},
        ),
        (
            said("keywords", 1.0, word=3),
            {"keyword_detected": 1},
            {"keyword_detector": {"detected_counts": {"word": 3}}},
        ),
        (
            said("policy_violation", 0.8, gambling=1),
            {"policy_violation": 1},
            {"policy_violation": {"violating_policy": "gambling"}},
        ),
        (said("bias", 0.8, bias=1), {"bias": 1}, {"bias": {"bias_detected": True}}),
        (
            said("system_prompt", 1.0, overlap=1),
            {"system_prompt_similarity": 1},
            {"system_prompt": {"similarity_score": 1.0}},
        ),
        (
            said("copyright"),
            {"copyright_ip_similarity": 0},
            {"copyright_ip": {"similarity_score": 0.0}},
        ),
        (
            said("sponge"),
            {"sponge_attack": 0},
            {"sponge_attack": {"sponge_attack_detected": False}},
        ),
        (
            said("grounded", 0.9, number=1),
            {"is_hallucination": 1, "adherence_score": 0},
            {"hallucination": {"is_hallucination": 1}, "adherence": {"adherence_score": 0.1}},
        ),
        (said("relevant"), {"relevancy_score": 1}, {"relevancy": {"relevancy_score": 1.0}}),
        (said("urls", 1.0, denied=1), {"urls": 1}, {"urls": {"denied": 1}}),
    ],
)
def test_a_verdict_has_its_word(verdict: Any, summary: Any, details: Any) -> None:
    event = detections([verdict])

    assert event["input_guardrails"] == {"summary": summary, "details": details}
    assert event["output_guardrails"] == {"summary": {}, "details": {}}


def test_input_and_output_are_told_apart() -> None:
    event = detections([said("nsfw"), said("nsfw", 0.7, stage="output", sexual=1)])

    assert event["input_guardrails"]["summary"] == {"nsfw": 0}
    assert event["output_guardrails"]["summary"] == {"nsfw": 1}


def test_guards_that_share_a_detector_are_told_as_one() -> None:
    verdicts = [
        said("pii", email=1),
        said("secrets", 1.0, github=1),
        said("topic", 0.9, off_topic=1),
        said("topic"),
        said("keywords", word=1),
        said("keywords", word=2),
    ]

    event = detections(verdicts)["input_guardrails"]

    assert event["summary"] == {"pii": 1, "on_topic": 0, "keyword_detected": 1}
    assert event["details"]["pii"] == {"pii": {"email": 1}, "secrets": {"github": 1}}
    assert event["details"]["keyword_detector"] == {"detected_counts": {"word": 3}}


@pytest.mark.parametrize("verdict", ["failed", "not_applicable"])
def test_a_guard_that_could_not_tell_claims_nothing(verdict: str) -> None:
    event = detections([said("pii", verdict=verdict)])

    assert event["input_guardrails"] == {"summary": {}, "details": {}}


def test_every_kind_of_guard_can_be_told() -> None:
    event = detections([said(kind) for kind in KINDS])["input_guardrails"]

    assert len(event["summary"]) >= len(KINDS) - 4  # pii and secrets share a word, and so do others
