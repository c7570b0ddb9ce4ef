"""A service of one's own: what it is told, how it is signed, and which of its answers count."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from proxy.guards.services.webhook import MAX_FINDINGS, Webhook
from proxy.guards.services.wire import BadAnswer
from proxy.types import Secret
from proxy.types.guard import Finding
from tests.doubles import ScriptedUpstream, answer
from tests.guards.elsewhere import UNASKED, ScriptedPiece, ways

TEXTS = [
    ScriptedPiece("My name is Jörg 🦛.", "content", "user"),
    ScriptedPiece("smol", "user", None),
]


def webhook(upstream: ScriptedUpstream, *kinds: str) -> Webhook:
    url = f"{upstream.url}/check"
    return Webhook("house", "input", url, Secret("s3cret"), frozenset(kinds), lambda: 1000.9)


async def ask_service(upstream: ScriptedUpstream, reply: Any, *kinds: str) -> list[list[Finding]]:
    upstream.answer_with(answer(reply))
    async with ways() as outside:
        findings = await webhook(upstream, *kinds).ask(TEXTS, UNASKED, outside)
    return [list(item) for item in findings]


async def test_request_has_texts_roles_and_kinds(upstream: ScriptedUpstream) -> None:
    await ask_service(upstream, {"findings": []})
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


async def test_the_moment_and_the_body_are_signed(upstream: ScriptedUpstream) -> None:
    await ask_service(upstream, {"findings": []})
    [request] = upstream.requests

    signed = hmac.new(b"s3cret", b"1000." + request.body, hashlib.sha256).hexdigest()
    assert request.headers["x-headrace-timestamp"] == "1000"
    assert request.headers["x-headrace-signature"] == f"v1={signed}"


async def test_findings_are_places_in_characters_or_whole_texts(upstream: ScriptedUpstream) -> None:
    reply = [
        {"text": 0, "start": 16, "end": 17, "kind": "animal", "score": 0.5},
        {"text": 0, "start": 11, "end": 15, "kind": "name"},
        {"text": 1, "kind": "sort"},
    ]

    assert await ask_service(upstream, {"findings": reply}, "name", "animal") == [
        [Finding(11, 15, "name"), Finding(16, 17, "animal", 0.5)],
        [Finding(0, 4, "other")],
    ]


async def test_a_finding_without_a_kind_is_just_found(upstream: ScriptedUpstream) -> None:
    assert await ask_service(upstream, {"findings": [{"text": 1}]}) == [
        [],
        [Finding(0, 4, "found")],
    ]


async def test_findings_that_overlap_are_put_apart(upstream: ScriptedUpstream) -> None:
    reply = [{"text": 1, "start": 0, "end": 3}, {"text": 1, "start": 2, "end": 4}]

    text_findings = await ask_service(upstream, {"findings": reply})
    assert [(finding.start, finding.end) for finding in text_findings[1]] == [(0, 3), (3, 4)]


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
async def test_response_outside_the_contract_is_invalid(
    reply: Any, upstream: ScriptedUpstream
) -> None:
    with pytest.raises(BadAnswer):
        await ask_service(upstream, reply)
