"""Calls with unusual fields, by a route of each dialect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.conftest import KEY, Proxy, Reply, policies_for
from tests.test_pipeline import BEARER

ROUTES: dict[str, tuple[str, dict[str, str], str]] = {
    "openai": ("/v1/completions", BEARER, "prompt"),
    "openai-chat": ("/v1/chat/completions", BEARER, "messages"),
    "openai-embeddings": ("/v1/embeddings", BEARER, "input"),
    "portkey": ("/v1/completions", {"x-portkey-api-key": KEY}, "prompt"),
    "fireworks": ("/inference/v1/completions", BEARER, "prompt"),
    "fireworks-chat": ("/inference/v1/chat/completions", BEARER, "messages"),
    "scale": ("/v5/completions", {"x-api-key": KEY}, "prompt"),
    "scale-chat": ("/v5/chat/completions", {"x-api-key": KEY}, "messages"),
    "multimodel": ("/v1/completion", BEARER, "prompt"),
    "enkrypt": ("/ai-proxy/completions", {"apikey": KEY}, "prompt"),
}
TEXTS: dict[str, Any] = {
    "prompt": "Hi there",
    "input": "Hi there",
    "messages": [{"role": "user", "content": "Hi there"}],
}
POLICY = """
policies:
  default:
    match: all
    limits:
      - {name: month, usd: 1 per month, unpriced: allow}
      - {name: rate, tokens: 100k per minute}
    input:
      - {guard: economics, max_cost_usd: 1}
      - {guard: secrets, action: block}
      - {guard: length, tokens: 100000, action: flag}
    opaque: allow
    cache: {ttl: 1h}
    rules:
      - {name: capped, cap: {max_tokens: 4096, n: 4, best_of: 4, temperature: 1, top_p: 1}}
      - {name: set, when: {tag: {beta: 'true'}}, set: {max_tokens: 5, n: 1}}
"""
Start = Callable[..., Awaitable[Proxy]]
"""Starts a proxy with a policy and, for its upstream `openai`, with ``extra`` settings."""


def policies(upstream: str, policy: str = POLICY, extra: str = "") -> str:
    return (
        policies_for(upstream).replace(
            "upstreams:\n  openai: {dialect: openai,",
            f"upstreams:\n  openai: {{{extra} dialect: openai,",
        )
        + policy
    )


async def ask(proxy: Proxy, route: str, fields: dict[str, Any]) -> Reply:
    path, headers, text = ROUTES[route]
    return await proxy.send(path, {"model": "support-chat", text: TEXTS[text], **fields}, headers)


def refusal(route: str) -> int:
    """Return the status of a refused field."""
    return 422 if "scale" in route else 400
