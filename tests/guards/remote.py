"""Guards that ask a service or a model, and a server that answers them honestly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import doubles
from tests.conftest import Proxy, policies_for, running_proxy
from tests.guards.calls import chat_answer, cut

POLICIES = """
upstreams:
  local: {{dialect: openai, base_url: '{url}', api_key: '${{UPSTREAM_KEY}}'}}
deployments:
  judge-smol:
    targets: [{{upstream: local, model: smol, price: {{input: 1, output: 2}}}}]
    policy: judging
policies:
  judging: {judging}
  default: {{match: all, {stage}: [{guard}]}}
"""
GUARDS = {
    "judge": "{guard: judge, deployment: judge-smol, criteria: No hippos.",
    "webhook": "{guard: webhook, url: 'URL', secret: '${UPSTREAM_KEY}'",
    "presidio": "{guard: presidio, url: 'URL'",
    "moderation": "{guard: moderation, upstream: local",
}
WORD = "hippo"


def verdict(is_found: bool, *where: int) -> dict[str, Any]:
    """Return the response of a judge's model."""
    members = {"reason": WORD, "verdict": "violation" if is_found else "pass"}
    return doubles.chat(json.dumps({**members, "score": 0.9 if is_found else 0, "where": where}))


def webhook(request: Any) -> Any:
    places = [(number, text["text"].find(WORD)) for number, text in enumerate(request["texts"])]
    return {
        "findings": [
            {"text": number, "start": start, "end": start + len(WORD)}
            for number, start in places
            if start >= 0
        ]
    }


def presidio(request: Any) -> Any:
    start = request["text"].find(WORD)
    place = {"entity_type": "PERSON", "start": start, "end": start + len(WORD), "score": 0.85}
    return [place] if start >= 0 else []


def moderation(request: Any) -> Any:
    def result(text: str) -> dict[str, Any]:
        bad = WORD in text
        scores = {"violence": 0.9 if bad else 0.1}
        return {"flagged": bad, "categories": {"violence": bad}, "category_scores": scores}

    return {"results": [result(text) for text in request["input"]]}


def judge(request: Any) -> Any:
    return verdict(WORD in request["messages"][1]["content"])


HONEST: dict[str, Callable[[Any], Any]] = {
    "judge": judge,
    "webhook": webhook,
    "presidio": presidio,
    "moderation": moderation,
}


def honest(kind: str) -> doubles.Script:
    """Inspect the texts of a request as the service of this guard does."""

    async def script(request: doubles.ReceivedRequest, wire: doubles.Wire) -> None:
        await doubles.respond(HONEST[kind](request.json))(request, wire)

    return script


@dataclass
class RemoteGuard:
    """A guarded proxy, and the server that its guard asks."""

    proxy: Proxy
    service: doubles.ScriptedUpstream


@asynccontextmanager
async def remotely_guarded(
    folder: Path,
    upstream: doubles.ScriptedUpstream,
    kind: str,
    extra: str = "",
    stage: str = "input",
    judging: str = "{input: [{guard: keywords, words: [horse]}]}",
    **settings: Any,
) -> AsyncIterator[RemoteGuard]:
    """Run a proxy with a guard whose entry in the policy goes on with ``extra``."""
    async with doubles.scripted_upstream() as service:
        service.answer_with(honest(kind))
        guard = f"{GUARDS[kind].replace('URL', service.url)}{extra}}}"
        policies = POLICIES.format(url=service.url, stage=stage, guard=guard, judging=judging)
        (folder / "guards.yaml").write_text(policies)
        async with running_proxy(folder, policies_for(upstream.url), **settings) as proxy:
            yield RemoteGuard(proxy, service)


def served(streamed: bool, text: str) -> doubles.Script:
    return chat_answer(*cut(text, 3), streamed=streamed)
