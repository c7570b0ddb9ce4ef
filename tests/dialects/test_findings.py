"""Guard results of upstreams: parsed, and joined with our results for clients."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.findings import (
    MAX_FINDINGS,
    MAX_NAMES,
    has_upstream_finding,
    make_enkrypt_detections,
    merge_enkrypt_detections,
    merge_portkey_hooks,
    read_upstream_findings,
)
from proxy.dialects.vendors.portkey import make_hook_results
from proxy.errors import UpstreamFinding
from proxy.guards.kinds import KINDS
from proxy.types.guard import GuardResult, GuardResults, Stage
from tests.for_each import for_each

MAILS = GuardResult("mails", "flagged", False, {"email": 1}, 1.0, 9, 1, 0.0, kind="pii")
TOPIC = GuardResult("topic", "passed", False, {}, 0.0, 9, 1, 0.0, kind="topic")
OURS: GuardResults = [
    ("input", MAILS._replace(detections=KINDS["pii"].detections)),
    ("output", TOPIC._replace(detections=KINDS["topic"].detections)),
]
DETECTED: dict[str, Any] = {
    "input_guardrails": {
        "summary": {"pii": 0, "toxicity": ["insult"], "on_topic": 1},
        "details": {"pii": {"pii": {"phone": 2}}, "toxicity": {"toxicity": 0.9}},
    },
    "output_guardrails": {"summary": {"on_topic": 0}, "details": {"topic_detector": {"x": 1}}},
}
HOOKED: dict[str, Any] = {
    "before_request_hooks": [{"id": "words", "verdict": False, "checks": [{"id": "a.b"}]}],
    "after_request_hooks": [{"id": "links", "verdict": True}],
}


def test_detections_are_read_as_names_and_flags() -> None:
    assert read_upstream_findings({"enkrypt_policy_detections": DETECTED}) == (
        UpstreamFinding("input", "pii", found=False),
        UpstreamFinding("input", "toxicity", found=True),
        UpstreamFinding("input", "on_topic", found=False),
        UpstreamFinding("output", "on_topic", found=True),
    )


def test_hook_results_are_read_as_names_and_flags() -> None:
    assert read_upstream_findings({"hook_results": HOOKED}) == (
        UpstreamFinding("input", "words", found=True),
        UpstreamFinding("output", "links", found=False),
    )


@for_each(
    "data",
    [
        {},
        {"enkrypt_policy_detections": None},
        {"enkrypt_policy_detections": {"input_guardrails": []}},
        {"enkrypt_policy_detections": {"input_guardrails": {"summary": [1]}}},
        {"enkrypt_policy_detections": {"input_guardrails": {"summary": {"a\r\nb": 1}}}},
        {"hook_results": [1]},
        {"hook_results": {"before_request_hooks": {"id": "x"}}},
        {"hook_results": {"before_request_hooks": [1, {"id": 5}, {"id": "x" * 65}]}},
    ],
)
def test_invalid_results_are_ignored(data: Any) -> None:
    assert read_upstream_findings(data) == ()
    assert not has_upstream_finding(data)
    merge_enkrypt_detections(data, (), make_enkrypt_detections(()))
    merge_portkey_hooks(data, (), make_hook_results(()))


def test_findings_of_a_response_are_bounded() -> None:
    hooks = [{"id": f"h{number}", "verdict": False} for number in range(MAX_FINDINGS * 2)]

    findings = read_upstream_findings({"hook_results": {"before_request_hooks": hooks}})
    assert len(findings) == MAX_FINDINGS


def test_joined_detections_keep_the_worse_result() -> None:
    data = {"enkrypt_policy_detections": DETECTED}
    fields = merge_enkrypt_detections(data, (), make_enkrypt_detections(OURS))

    first_value, last_value = fields["input_guardrails"], fields["output_guardrails"]
    assert first_value["summary"] == {"pii": 1, "toxicity": ["insult"], "on_topic": 1}
    assert first_value["details"]["pii"] == {"pii": {"phone": 2, "email": 1}}
    assert first_value["details"]["toxicity"] == {"toxicity": 0.9}
    assert last_value["summary"] == {"on_topic": 0}
    assert last_value["details"] == {"topic_detector": {"x": 1}}


def test_upstream_hooks_become_detections() -> None:
    fields = merge_enkrypt_detections({"hook_results": HOOKED}, (), make_enkrypt_detections(OURS))

    assert fields["input_guardrails"]["summary"] == {"words": 1, "pii": 1}
    assert fields["output_guardrails"]["summary"] == {"links": 0, "on_topic": 1}


def test_upstream_detections_become_hooks() -> None:
    data = {"hook_results": HOOKED, "enkrypt_policy_detections": DETECTED}

    fields = merge_portkey_hooks(data, (), make_hook_results(OURS))

    items_before = [(hook["id"], hook["verdict"]) for hook in fields["before_request_hooks"]]
    items_after = [(hook["id"], hook["verdict"]) for hook in fields["after_request_hooks"]]
    theirs = [("pii", True), ("toxicity", False), ("on_topic", True)]
    assert items_before == [("words", False), *theirs, ("mails", False)]
    assert items_after == [("links", True), ("on_topic", False), ("topic", True)]
    assert fields["before_request_hooks"][0] == HOOKED["before_request_hooks"][0]


def test_number_of_read_names_is_bounded() -> None:
    class Counted(dict[str, int]):
        looked = 0

        def items(self) -> Any:
            for item in super().items():
                self.looked += 1
                yield item

    summary = Counted({f"not a name! {number}": 1 for number in range(10 * MAX_NAMES)})

    detections = {"input_guardrails": {"summary": summary}}
    assert not has_upstream_finding({"enkrypt_policy_detections": detections})
    assert summary.looked <= MAX_NAMES + 1


# Names from Enkrypt's API reference.
NAMES = {
    "topic_detector", "nsfw", "toxicity", "pii", "injection_attack", "keyword_detector",
    "policy_violation", "bias", "system_prompt", "copyright_ip", "sponge_attack",
    "hallucination", "adherence", "relevancy",
}  # fmt: skip


def verdict_of(
    kind: str, score: float = 0.0, *, stage: Stage = "input", verdict: Any = None, **results: int
) -> tuple[Stage, GuardResult]:
    verdict = verdict or ("flagged" if results else "passed")
    result = GuardResult("its name", verdict, False, results, score, 10, 1, 0.0, kind=kind)
    return stage, result._replace(action="flag", detections=KINDS[kind].detections)


@for_each(
    ("verdict", "summary", "details"),
    [
        (verdict_of("topic", 0.9, off_topic=1), {"on_topic": 0},
            {"topic_detector": {"off_topic": 1}}),
        (verdict_of("topic"), {"on_topic": 1}, {"topic_detector": {}}),
        (verdict_of("nsfw", 0.75, sexual=1), {"nsfw": 1}, {"nsfw": {"sfw": 0.25, "nsfw": 0.75}}),
        (verdict_of("toxicity", 0.6, insult=1, slur=2), {"toxicity": ["insult", "identity_hate"]},
            {"toxicity": {"toxicity": 0.6, "insult": 0.6, "identity_hate": 0.6}}),
        (verdict_of("pii", 1.0, email=2), {"pii": 1}, {"pii": {"pii": {"email": 2}}}),
        (verdict_of("injection", 0.97, model=1), {"injection_attack": 1},
            {"injection_attack": {"safe": "0.030", "attack": "0.970"}}),
        (verdict_of("keywords", 1.0, word=3), {"keyword_detected": 1},
            {"keyword_detector": {"detected_counts": {"word": 3}}}),
        (verdict_of("policy_violation", 0.8, gambling=1), {"policy_violation": 1},
            {"policy_violation": {"violating_policy": "gambling"}}),
        (verdict_of("bias", 0.8, bias=1), {"bias": 1}, {"bias": {"bias_detected": True}}),
        (verdict_of("system_prompt", 1.0, overlap=1), {"system_prompt_similarity": 1},
            {"system_prompt": {"similarity_score": 1.0}}),
        (verdict_of("copyright"), {"copyright_ip_similarity": 0},
            {"copyright_ip": {"similarity_score": 0.0}}),
        (verdict_of("sponge"), {"sponge_attack": 0},
            {"sponge_attack": {"sponge_attack_detected": False}}),
        (verdict_of("grounded", 0.9, number=1), {"is_hallucination": 1, "adherence_score": 0},
            {"hallucination": {"is_hallucination": 1}, "adherence": {"adherence_score": 0.1}}),
        (verdict_of("relevant"), {"relevancy_score": 1}, {"relevancy": {"relevancy_score": 1.0}}),
        (verdict_of("urls", 1.0, denied=1), {"urls": 1}, {"urls": {"denied": 1}}),
    ],
)  # fmt: skip
def test_verdict_is_mapped(verdict: Any, summary: Any, details: Any) -> None:
    event = make_enkrypt_detections([verdict])

    assert event["input_guardrails"] == {"summary": summary, "details": details}
    assert event["output_guardrails"] == {"summary": {}, "details": {}}


def test_guards_with_one_detector_are_joined() -> None:
    verdicts = [verdict_of("pii", email=1), verdict_of("secrets", 1.0, github=1)]
    verdicts += [verdict_of("topic", 0.9, off_topic=1), verdict_of("topic")]
    verdicts += [verdict_of("keywords", word=1), verdict_of("keywords", word=2)]

    event = make_enkrypt_detections(verdicts)["input_guardrails"]

    assert event["summary"] == {"pii": 1, "on_topic": 0, "keyword_detected": 1}
    assert event["details"]["pii"] == {"pii": {"email": 1}, "secrets": {"github": 1}}
    assert event["details"]["keyword_detector"] == {"detected_counts": {"word": 3}}


@pytest.mark.parametrize("verdict", ["failed", "not_applicable"])
def test_failed_guard_reports_no_detection(verdict: str) -> None:
    event = make_enkrypt_detections([verdict_of("pii", verdict=verdict)])

    assert event["input_guardrails"] == {"summary": {}, "details": {}}


def test_every_enkrypt_detector_has_a_guard_and_every_guard_is_reported() -> None:
    assert {detection.name for kind in KINDS.values() for detection in kind.detections} == NAMES
    event = make_enkrypt_detections([verdict_of(kind) for kind in KINDS])["input_guardrails"]

    assert len(event["summary"]) >= len(KINDS) - 4  # some kinds share a name
