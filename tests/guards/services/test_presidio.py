"""Guard services: Presidio, a moderation endpoint, and a webhook."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import pytest

from proxy.guards.services.moderation import MAX_TEXTS, Moderation
from proxy.guards.services.presidio import MAX_REQUESTS, Presidio
from proxy.guards.services.webhook import MAX_FINDINGS, Webhook
from proxy.guards.services.wire import BadAnswer, NoAnswer
from proxy.types import Secret, Upstream
from proxy.types.guard import Finding, ServiceDetector
from tests.doubles import ReceivedRequest, ScriptedUpstream, Wire, respond
from tests.guards.guard_clients import UNASKED, ScriptedPiece, guard_clients


def result(kind: str, start: int, end: int, score: float = 0.85) -> dict[str, Any]:
    """Return a result of the analyzer."""
    extra = {"analysis_explanation": None, "recognition_metadata": {"recognizer_name": "R"}}
    return {"entity_type": kind, "start": start, "end": end, "score": score, **extra}


def presidio(upstream: ScriptedUpstream) -> Presidio:
    return Presidio(upstream.url, ("PERSON", "LOCATION"), "de", 0.4)


async def ask(guard: ServiceDetector, *texts: str) -> list[list[Finding]]:
    pieces = [ScriptedPiece(text) for text in texts]
    async with guard_clients() as client:
        return [list(found) for found in await guard.find_all(pieces, UNASKED, client)]


async def test_each_text_is_analyzed_for_policy_entities(upstream: ScriptedUpstream) -> None:
    async def by_text(request: ReceivedRequest, wire: Wire) -> None:
        entities = [result("PERSON", 4, 8)] if "Jörg" in request.json["text"] else []
        await respond(entities)(request, wire)

    upstream.answer_with(by_text)
    results = await ask(presidio(upstream), "Ich, Jörg.", "  ", "Hallo")

    assert results == [[Finding(4, 8, "person", 0.85)], [], []]
    requests = sorted(upstream.requests, key=lambda request: len(request.body), reverse=True)
    options = {"language": "de", "entities": ["PERSON", "LOCATION"], "score_threshold": 0.4}
    assert [(request.path, request.json) for request in requests] == [
        ("/analyze", {"text": text, **options}) for text in ("Ich, Jörg.", "Hallo")
    ]


async def test_unrequested_entity_is_reported_as_other(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond([result("DRUG_NAME", 0, 2), result("PERSON", 1, 3, 0.9)]))
    [findings] = await ask(presidio(upstream), "abc")

    assert findings == [Finding(0, 1, "other", 0.85), Finding(1, 3, "person", 0.9)]


@pytest.mark.parametrize(
    "reply",
    [
        {"error": "no"},
        [result("PERSON", 0, 4)],
        [result("PERSON", 2, 2)],
        [result("PERSON", -1, 2)],
        [result("PERSON", 0, 2, 1.5)],
        [{"entity_type": "PERSON"}],
        b"nothing",
    ],
)
async def test_impossible_result_is_invalid(reply: Any, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(reply))
    with pytest.raises(BadAnswer):
        await ask(presidio(upstream), "abc")


async def test_one_failed_text_fails_the_guard(upstream: ScriptedUpstream) -> None:
    upstream.then(respond([]), respond({"error": "language"}, 500))
    with pytest.raises(NoAnswer):
        await ask(presidio(upstream), "abc", "def")


async def test_number_of_requests_at_once_is_bounded(upstream: ScriptedUpstream) -> None:
    under_way, highest, full = 0, 0, asyncio.Event()

    async def slowly(request: ReceivedRequest, wire: Wire) -> None:
        nonlocal under_way, highest
        under_way += 1
        highest = max(highest, under_way)
        if under_way == MAX_REQUESTS:
            full.set()
        await full.wait()
        under_way -= 1
        await respond([])(request, wire)

    upstream.answer_with(slowly)
    await ask(presidio(upstream), *map(str, range(20)))

    assert (highest, len(upstream.requests)) == (MAX_REQUESTS, 20)


TEXTS = [
    ScriptedPiece("My name is Jörg 🦛.", "content", "user"),
    ScriptedPiece("smol", "user", None),
]


def webhook(upstream: ScriptedUpstream, *kinds: str) -> Webhook:
    url = f"{upstream.url}/check"
    return Webhook("house", "input", url, Secret("s3cret"), frozenset(kinds), lambda: 1000.9)


async def ask_webhook(upstream: ScriptedUpstream, reply: Any, *kinds: str) -> list[list[Finding]]:
    upstream.answer_with(respond(reply))
    async with guard_clients() as client:
        findings = await webhook(upstream, *kinds).find_all(TEXTS, UNASKED, client)
    return [list(item) for item in findings]


async def test_signed_request_has_texts_roles_and_kinds(upstream: ScriptedUpstream) -> None:
    await ask_webhook(upstream, {"findings": []})
    [request] = upstream.requests

    assert request.path == "/check"
    assert request.json == {
        "version": 1,
        "guard": "house",
        "stage": "input",
        "request_id": "req_1",
        "texts": [
            {"text": "My name is Jörg 🦛.", "role": "user", "kind": "content"},
            {"text": "smol", "role": None, "kind": "user"},
        ],
    }
    signed = hmac.new(b"s3cret", b"1000." + request.body, hashlib.sha256).hexdigest()
    assert request.headers["x-headrace-timestamp"] == "1000"
    assert request.headers["x-headrace-signature"] == f"v1={signed}"


@pytest.mark.parametrize(
    ("reply", "findings"),
    [
        (
            [
                {"text": 0, "start": 16, "end": 17, "kind": "animal", "score": 0.5},
                {"text": 0, "start": 11, "end": 15, "kind": "name"},
                {"text": 1, "kind": "sort"},
            ],
            [
                [Finding(11, 15, "name"), Finding(16, 17, "animal", 0.5)],
                [Finding(0, 4, "other")],
            ],
        ),
        ([{"text": 1}], [[], [Finding(0, 4, "found")]]),
        (
            [{"text": 1, "start": 0, "end": 3}, {"text": 1, "start": 2, "end": 4}],
            [[], [Finding(0, 3, "found"), Finding(3, 4, "found")]],
        ),
    ],
    ids=["kinds", "no kind", "overlap"],
)
async def test_findings_are_character_ranges_or_whole_texts(
    reply: list[Any], findings: list[Any], upstream: ScriptedUpstream
) -> None:
    assert await ask_webhook(upstream, {"findings": reply}, "name", "animal") == findings


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"findings": None},
        {"findings": [], "verdict": "pass"},
        {"findings": [{"text": 2}]},
        {"findings": [{"text": -1}]},
        {"findings": [{"text": "0"}]},
        {"findings": [{"text": 0, "start": 0}]},
        {"findings": [{"text": 0, "end": 1}]},
        {"findings": [{"text": 0, "start": 0, "end": 0}]},
        {"findings": [{"text": 0, "start": 3, "end": 2}]},
        {"findings": [{"text": 0, "start": -1, "end": 2}]},
        {"findings": [{"text": 1, "start": 0, "end": 5}]},
        {"findings": [{"text": 0, "score": 1.1}]},
        {"findings": [{"text": 0, "kind": "k" * 65}]},
        {"findings": [{"text": 0, "more": 1}]},
        {"findings": [{"text": 0}] * (MAX_FINDINGS + 1)},
        [],
        b"<html>",
        b"",
    ],
)
async def test_response_outside_contract_is_invalid(reply: Any, upstream: ScriptedUpstream) -> None:
    with pytest.raises(BadAnswer):
        await ask_webhook(upstream, reply)


def moderated(*flagged: str, **scores: float) -> dict[str, Any]:
    """Return the endpoint's result for one text."""
    names = {"hate": 0.01, "violence": 0.02, **scores}
    return {
        "flagged": bool(flagged),
        "categories": {name: name in flagged for name in (*names, *flagged)},
        "category_scores": names,
        "category_applied_input_types": {},
    }


def answered(*results: dict[str, Any]) -> dict[str, Any]:
    return {"id": "modr-1", "model": "omni", "results": list(results)}


async def ask_moderation(
    upstream: ScriptedUpstream, reply: Any, texts: list[str], categories: Mapping[str, float]
) -> list[list[Finding]]:
    upstream.answer_with(respond(reply))
    openai = Upstream("openai", "openai", upstream.url, Secret("sk-1"))
    return await ask(Moderation(openai, "omni", categories), *texts)


async def test_nonblank_texts_share_one_request(upstream: ScriptedUpstream) -> None:
    reply = answered(moderated(), moderated("hate", hate=0.9, violence=0.1))

    findings = await ask_moderation(upstream, reply, ["Hello", " ", "Die!"], {})
    [request] = upstream.requests

    assert findings == [[], [], [Finding(0, 4, "hate", 0.9)]]
    assert request.json == {"input": ["Hello", "Die!"], "model": "omni"}
    assert (request.path, request.headers["authorization"]) == ("/v1/moderations", "Bearer sk-1")


async def test_many_texts_are_sent_in_several_requests(upstream: ScriptedUpstream) -> None:
    upstream.then(respond(answered(*[moderated()] * MAX_TEXTS)))

    last_answer = answered(moderated("hate"))
    findings = await ask_moderation(upstream, last_answer, ["x"] * (MAX_TEXTS + 1), {})

    assert [len(request.json["input"]) for request in upstream.requests] == [MAX_TEXTS, 1]
    assert [bool(request) for request in findings] == [False] * MAX_TEXTS + [True]


@pytest.mark.parametrize(
    ("result", "thresholds", "findings"),
    [
        (moderated("violence", violence=0.9, hate=0.3), {"hate": 0.3}, [("hate", 0.3)]),
        (moderated(hate=0.29), {"hate": 0.3}, []),
        (moderated("violence", "hate", violence=0.8, hate=0.7), {}, [("violence", 0.8)]),
        (moderated("rudeness", rudeness=0.8), {}, [("other", 0.8)]),
        (moderated("rudeness", rudeness=0.8), {"rudeness": 0.5}, [("rudeness", 0.8)]),
        ({**moderated(), "flagged": True}, {}, [("other", 1.0)]),
    ],
)
async def test_worst_category_above_its_threshold_is_found(
    result: Any, thresholds: dict[str, float], findings: list[Any], upstream: ScriptedUpstream
) -> None:
    assert await ask_moderation(upstream, answered(result), ["x"], thresholds) == [
        [Finding(0, 1, kind, score) for kind, score in findings]
    ]


@pytest.mark.parametrize(
    ("reply", "thresholds"),
    [
        (answered(), {}),
        (answered(moderated(), moderated()), {}),
        ({"results": [{**moderated(), "flagged": "no"}]}, {}),
        ({"error": {"message": "no"}}, {}),
        (answered(moderated()), {"rudeness": 0.5}),
    ],
)
async def test_results_must_match_texts_and_categories(
    reply: Any, thresholds: dict[str, float], upstream: ScriptedUpstream
) -> None:
    with pytest.raises(BadAnswer):
        await ask_moderation(upstream, reply, ["x"], thresholds)
