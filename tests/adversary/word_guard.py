"""A proxy whose output guard looks for one word, and calls that require the word to stay hidden."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.client_readers import assemble_texts
from tests.conftest import Proxy, Reply, policies_for, running_proxy
from tests.doubles import Json, Script, ScriptedUpstream, stream
from tests.test_pipeline import BEARER, MESSAGES

WORD = "hydropolis"
GUARD = "output: [{{guard: keywords, words: [hydropolis], action: {}}}]"
ACTIONS = pytest.mark.parametrize("action", ["mask", "block"])
CLIENTS: Mapping[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", MESSAGES),
    "messages": ("/v1/messages", {**MESSAGES, "max_tokens": 9}),
    "responses": ("/v1/responses", {"input": "Hi"}),
    "completions": ("/v1/completions", {"prompt": "Hi"}),
}
DEPLOYMENTS: Mapping[str, str] = {
    "chat": "search-answers",
    "messages": "via-anthropic",
    "responses": "responses-only",
    "completions": "legacy-only",
}
"""The deployment whose upstream has an API."""


@dataclass(frozen=True)
class GuardedResponse:
    """A response, the record of its call, and the texts that clients could assemble from it."""

    reply: Reply
    record: Any
    texts: Mapping[object, str]

    def require_hidden(self, *label: object) -> None:
        """Fail if some reading of the response contains the word."""
        readings = [key for key, text in self.texts.items() if WORD in text.lower()]
        assert readings == [], (label, self.reply.raw)


@dataclass(frozen=True)
class GuardedCalls:
    """Sends calls through a proxy that inspects responses."""

    proxy: Proxy
    upstream: ScriptedUpstream

    async def send(
        self, client: str, script: Script, api: str = "chat", **fields: Any
    ) -> GuardedResponse:
        """Send a call of ``client`` to an upstream with ``api`` that responds with ``script``."""
        self.upstream.answer_with(script)
        path, body = CLIENTS[client]
        headers = BEARER | {"x-headrace-deployment": DEPLOYMENTS[api]}
        reply = await self.proxy.send(path, {"model": "any", **body, **fields}, headers)
        [record] = await self.proxy.sink.wait()
        self.proxy.sink.forget()
        assert not record.is_internal_error, record.error
        is_single = fields.get("n", 1) == 1
        return GuardedResponse(reply, record, assemble_texts(reply.raw, is_single=is_single))


@asynccontextmanager
async def word_guard(
    folder: Path, upstream: ScriptedUpstream, action: str, more: str = ""
) -> AsyncIterator[GuardedCalls]:
    """Run a proxy whose guard masks, flags or blocks ``WORD`` in responses."""
    policies = policies_for(upstream.url).replace("base_url: '", "breaker: off, base_url: '")
    rules = GUARD.format(action) + more
    policies += f"\npolicies:\n  default: {{match: all, {rules}}}\n"
    async with running_proxy(folder / "policies", policies) as proxy:
        yield GuardedCalls(proxy, upstream)


def chunk(*choices: Any, **members: Any) -> Json:
    return {"id": "c1", "object": "chat.completion.chunk", "choices": [*choices], **members}


def choice(delta: Any, finish: Any = None, index: object = 0) -> Json:
    return {"index": index, "delta": delta, "finish_reason": finish}


def stream_deltas(*deltas: Json, finish: Any = "stop") -> Script:
    """Stream deltas of one choice, the last with its finish reason."""
    *first_deltas, last_delta = deltas
    return stream(
        [*(chunk(choice(delta)) for delta in first_deltas), chunk(choice(last_delta, finish))]
    )
