"""Calls with unusual fields on a route of each dialect, with and without a running proxy."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from proxy.dialects import RequestContext, parse_request_head, read_call
from proxy.dialects.requests.upstream_request import build_request
from proxy.errors import BadRequest, InvalidField
from proxy.types import NO_OVERRIDES, Call, ParameterOverrides, Target, Upstream
from tests.conftest import KEY, Proxy, Reply, policies_for
from tests.doubles import Json
from tests.test_pipeline import BEARER

PORTKEY = {"x-portkey-api-key": KEY}
ROUTES: Mapping[str, tuple[str, Mapping[str, str], str]] = {
    "openai": ("/v1/completions", BEARER, "prompt"),
    "openai-chat": ("/v1/chat/completions", BEARER, "messages"),
    "openai-embeddings": ("/v1/embeddings", BEARER, "input"),
    "portkey": ("/v1/completions", PORTKEY, "prompt"),
    "portkey-chat": ("/v1/chat/completions", PORTKEY, "messages"),
    "fireworks": ("/inference/v1/completions", BEARER, "prompt"),
    "fireworks-chat": ("/inference/v1/chat/completions", BEARER, "messages"),
    "scale": ("/v5/completions", {"x-api-key": KEY}, "prompt"),
    "scale-chat": ("/v5/chat/completions", {"x-api-key": KEY}, "messages"),
    "multimodel": ("/v1/completion", BEARER, "prompt"),
    "enkrypt": ("/ai-proxy/completions", {"apikey": KEY}, "prompt"),
    "enkrypt-chat": ("/ai-proxy/chat/completions", {"apikey": KEY}, "messages"),
}
"""The path, the credential and the field with the text of a call."""
TEXT_ROUTES = tuple(name for name in ROUTES if name != "openai-embeddings")
TEXTS: Mapping[str, Any] = {
    "prompt": "Hi",
    "input": "Hi",
    "messages": [{"role": "user", "content": "Hi"}],
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
OPEN_TARGET = Target(Upstream("up", "openai", "http://127.0.0.1:9", skips_range_checks=True), "m")
"""A target with the API of OpenAI that is not OpenAI."""


def build_policies(upstream: str, policy: str = POLICY, extra: str = "") -> str:
    openai = "upstreams:\n  openai: {"
    return policies_for(upstream).replace(openai, f"{openai}{extra} ") + policy


async def send_fields(proxy: Proxy, route: str, fields: Json) -> Reply:
    path, headers, text = ROUTES[route]
    return await proxy.send(path, {"model": "support-chat", text: TEXTS[text], **fields}, headers)


def refusal_status(route: str) -> int:
    """Return the status of a refused field."""
    return 422 if "scale" in route else 400


def set_field(body: Json, path: str, value: Any) -> None:
    *groups, name = path.split(".")
    for group in groups:
        body = body.setdefault(group, {})
    body[name] = value


def get_field(body: Any, path: str) -> Any:
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body


def read_request(route: str, fields: Json) -> Call:
    """Return the call of a request. Names of fields may be paths."""
    path, headers, text = ROUTES[route]
    body = {"model": "m", text: TEXTS[text]}
    for name, value in fields.items():
        set_field(body, name, value)
    received = RequestContext("r", "r", datetime(2026, 1, 1, tzinfo=UTC))
    return read_call(parse_request_head("POST", path, dict(headers), received), body)


def build_body(
    call: Call, target: Target = OPEN_TARGET, changes: ParameterOverrides = NO_OVERRIDES
) -> Json:
    """Return the body that a target gets."""
    body: Json = json.loads(build_request(call, target, changes).body)
    return body


def find_refused_field(route: str, fields: Json, target: Target = OPEN_TARGET) -> str | None:
    """Return the refused field, "(body)" for a refusal that names none, or None if accepted."""
    path, headers, text = ROUTES[route]
    received = RequestContext("r", "r", datetime(2026, 1, 1, tzinfo=UTC))
    body = {"model": "m", text: TEXTS[text], **fields}
    try:
        build_request(
            read_call(parse_request_head("POST", path, dict(headers), received), body), target
        )
    except InvalidField as error:
        return error.param or ""
    except BadRequest:
        return "(body)"
    return None
