"""Calls of guarded proxies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conftest import Proxy, Reply, policies_for, running_proxy
from tests.doubles import Json, Script, ScriptedUpstream, chat, chat_events, respond, stream
from tests.test_pipeline import BEARER, MESSAGES, Route

EMAIL = "jane@example.com"
WORD = "{guard: keywords, words: [hippo, Größe]}"
PII = "{guard: pii, entities: [email], action: mask}"


@asynccontextmanager
async def guarded(folder: Path, upstream: ScriptedUpstream, guards: str) -> AsyncIterator[Proxy]:
    """Run a proxy whose default policy has these guards."""
    policies = f"{policies_for(upstream.url)}\npolicies:\n  default: {{match: all, {guards}}}\n"
    async with running_proxy(folder / "policies", policies) as proxy:
        yield proxy


async def ask(
    proxy: Proxy, content: Any, headers: Mapping[str, str] | None = None, **options: Any
) -> Reply:
    """Send a chat with one message of the user."""
    messages = [{"role": "user", "content": content}]
    body = {"model": "search-answers", "messages": messages, **options}
    return await proxy.send("/v1/chat/completions", body, {**BEARER, **(headers or {})})


async def ask_route(
    proxy: Proxy, route: Route, fields: Json = MESSAGES, *, streamed: bool = False
) -> Reply:
    """Send a call by a route of any dialect."""
    body = {**route.body(streamed=streamed, **fields), "model": "support-chat"}
    return await proxy.send(route.path, body, route.credential)


def chat_answer(*texts: str, streamed: bool) -> Script:
    return stream(chat_events(*texts)) if streamed else respond(chat("".join(texts)))


def cut(text: str, size: int) -> list[str]:
    """Return the text in pieces of ``size`` characters."""
    return [text[index : index + size] for index in range(0, len(text), size)]


def verdicts(record: Any, stage: str) -> list[str]:
    return [result.verdict for position, result in record.list_guard_results() if position == stage]


def decision_metric(guard: str, stage: str, verdict: str) -> str:
    labels = f'guard="{guard}",shadow="false",stage="{stage}",verdict="{verdict}"'
    return f"headrace_guard_decisions_total{{{labels}}} 1.0"
