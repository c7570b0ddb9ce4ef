"""A moderation endpoint: asked about many texts at once, by its own verdict or by thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.guards.services.moderation import MAX_TEXTS, Moderation
from proxy.guards.services.wire import BadAnswer
from proxy.types import Secret, Upstream
from proxy.types.guard import Finding
from tests.doubles import ScriptedUpstream, answer
from tests.guards.elsewhere import UNASKED, ScriptedPiece, ways


def result(*flagged: str, **scores: float) -> dict[str, Any]:
    """What the endpoint says of one text."""
    names = {"hate": 0.01, "violence": 0.02, **scores}
    return {
        "flagged": bool(flagged),
        "categories": {name: name in flagged for name in (*names, *flagged)},
        "category_scores": names,
        "category_applied_input_types": {},
    }


def answered(*results: dict[str, Any]) -> dict[str, Any]:
    return {"id": "modr-1", "model": "omni", "results": list(results)}


async def ask_service(
    upstream: ScriptedUpstream, reply: Any, texts: list[str], categories: Mapping[str, float]
) -> list[list[Finding]]:
    upstream.answer_with(answer(reply))
    openai = Upstream("openai", "openai", upstream.url, Secret("sk-1"))
    guard = Moderation(openai, "omni", categories)
    async with ways() as outside:
        findings = await guard.ask([ScriptedPiece(text) for text in texts], UNASKED, outside)
    return [list(item) for item in findings]


async def test_nonblank_texts_share_one_request(
    upstream: ScriptedUpstream,
) -> None:
    reply = answered(result(), result("hate", hate=0.9, violence=0.1))

    findings = await ask_service(upstream, reply, ["Hello", " ", "Die!"], {})
    [request] = upstream.requests

    assert findings == [[], [], [Finding(0, 4, "hate", 0.9)]]
    assert request.json == {"input": ["Hello", "Die!"], "model": "omni"}
    assert (request.path, request.headers["authorization"]) == ("/v1/moderations", "Bearer sk-1")


async def test_threshold_overrides_the_flag(
    upstream: ScriptedUpstream,
) -> None:
    reply = answered(result("violence", violence=0.9, hate=0.3), result(hate=0.29))

    assert await ask_service(upstream, reply, ["one", "two"], {"hate": 0.3}) == [
        [Finding(0, 3, "hate", 0.3)],
        [],
    ]


async def test_the_surest_of_several_categories_is_told(upstream: ScriptedUpstream) -> None:
    reply = answered(result("violence", "hate", violence=0.8, hate=0.7))

    assert await ask_service(upstream, reply, ["x"], {}) == [[Finding(0, 1, "violence", 0.8)]]


async def test_unknown_category_is_reported_as_other(
    upstream: ScriptedUpstream,
) -> None:
    reply = answered(result("rudeness", rudeness=0.8))

    assert await ask_service(upstream, reply, ["x"], {}) == [[Finding(0, 1, "other", 0.8)]]
    assert await ask_service(upstream, reply, ["x"], {"rudeness": 0.5}) == [
        [Finding(0, 1, "rudeness", 0.8)]
    ]


async def test_flag_without_category_is_a_finding(upstream: ScriptedUpstream) -> None:
    reply = answered({**result(), "flagged": True})

    assert await ask_service(upstream, reply, ["x"], {}) == [[Finding(0, 1, "other", 1.0)]]


async def test_more_texts_than_fit_go_in_several_requests(upstream: ScriptedUpstream) -> None:
    upstream.then(answer(answered(*[result()] * MAX_TEXTS)))

    findings = await ask_service(upstream, answered(result("hate")), ["x"] * (MAX_TEXTS + 1), {})

    assert [len(request.json["input"]) for request in upstream.requests] == [MAX_TEXTS, 1]
    assert [bool(request) for request in findings] == [False] * MAX_TEXTS + [True]


@pytest.mark.parametrize(
    "reply",
    [
        answered(),
        answered(result(), result()),
        {"results": [{"flagged": False}]},
        {"results": [{**result(), "flagged": "no"}]},
        {"error": {"message": "no"}},
        b"",
    ],
)
async def test_results_must_fit_the_texts(reply: Any, upstream: ScriptedUpstream) -> None:
    with pytest.raises(BadAnswer):
        await ask_service(upstream, reply, ["x"], {})


async def test_missing_category_is_invalid(
    upstream: ScriptedUpstream,
) -> None:
    with pytest.raises(BadAnswer):
        await ask_service(upstream, answered(result()), ["x"], {"rudeness": 0.5})
