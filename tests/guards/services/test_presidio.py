"""Presidio's analyzer: asked text by text, a few at a time, its places mapped as they are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.guards.services.presidio import MAX_REQUESTS, Presidio
from proxy.guards.services.wire import BadAnswer, NoAnswer
from proxy.types.guard import Finding
from tests.doubles import Asked, ScriptedUpstream, Wire, answer
from tests.guards.elsewhere import UNASKED, ScriptedPiece, ways


def result(kind: str, start: int, end: int, score: float = 0.85) -> dict[str, Any]:
    """A result as the analyzer writes it."""
    extra = {"analysis_explanation": None, "recognition_metadata": {"recognizer_name": "R"}}
    return {"entity_type": kind, "start": start, "end": end, "score": score, **extra}


def presidio(upstream: ScriptedUpstream) -> Presidio:
    return Presidio(upstream.url, ("PERSON", "LOCATION"), "de", 0.4)


async def test_each_text_is_analyzed_for_policy_entities(
    upstream: ScriptedUpstream,
) -> None:
    async def by_text(request: Asked, wire: Wire) -> None:
        entities = [result("PERSON", 4, 8)] if "Jörg" in request.json["text"] else []
        await answer(entities)(request, wire)

    upstream.answer_with(by_text)
    async with ways() as outside:
        texts = [ScriptedPiece("Ich, Jörg."), ScriptedPiece("  "), ScriptedPiece("Hallo")]
        results = await presidio(upstream).ask(texts, UNASKED, outside)

    assert [list(findings) for findings in results] == [[Finding(4, 8, "person", 0.85)], [], []]
    requests = sorted(upstream.requests, key=lambda request: len(request.body), reverse=True)
    assert [(request.path, request.json) for request in requests] == [
        (
            "/analyze",
            {
                "text": text,
                "language": "de",
                "entities": ["PERSON", "LOCATION"],
                "score_threshold": 0.4,
            },
        )
        for text in ("Ich, Jörg.", "Hallo")
    ]


async def test_unrequested_entity_is_reported_as_other(upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer([result("DRUG_NAME", 0, 2), result("PERSON", 1, 3, 0.9)]))
    async with ways() as outside:
        [finding] = await presidio(upstream).ask([ScriptedPiece("abc")], UNASKED, outside)

    assert list(finding) == [Finding(0, 1, "other", 0.85), Finding(1, 3, "person", 0.9)]


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
async def test_an_answer_that_cannot_be_is_none(reply: Any, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(reply))
    async with ways() as outside:
        with pytest.raises(BadAnswer):
            await presidio(upstream).ask([ScriptedPiece("abc")], UNASKED, outside)


async def test_one_failed_text_fails_the_guard(upstream: ScriptedUpstream) -> None:
    upstream.then(answer([]), answer({"error": "language"}, 500))
    async with ways() as outside:
        with pytest.raises(NoAnswer):
            await presidio(upstream).ask(
                [ScriptedPiece("abc"), ScriptedPiece("def")], UNASKED, outside
            )


async def test_number_of_requests_at_once_is_bounded(upstream: ScriptedUpstream) -> None:
    under_way, highest, full = 0, 0, asyncio.Event()

    async def slowly(request: Asked, wire: Wire) -> None:
        nonlocal under_way, highest
        under_way += 1
        highest = max(highest, under_way)
        if under_way == MAX_REQUESTS:
            full.set()
        await full.wait()
        under_way -= 1
        await answer([])(request, wire)

    upstream.answer_with(slowly)
    async with ways() as outside:
        await presidio(upstream).ask([ScriptedPiece(str(n)) for n in range(20)], UNASKED, outside)

    assert (highest, len(upstream.requests)) == (MAX_REQUESTS, 20)
