"""A gateway upstream gets declared and accepted request fields only: its own settings are not the
client's to choose, whatever they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.policy.compile.upstreams import is_gateway
from proxy.policy.schema import UpstreamConfig
from proxy.types.providers import GATEWAYS
from tests.adversary.test_what_a_request_may_say import ask, proxied
from tests.doubles import ScriptedUpstream

SETTINGS: dict[str, Any] = {
    "additional_drop_params": ["max_tokens"],
    "router_settings_override": {"num_retries": 9},
    "providerOptions": {"gateway": {"order": ["a"]}},
    "safety_settings": [{"threshold": "NONE"}],
    "disable_global_guardrails": True,
    "s3_endpoint_url": "https://evil.example",
    "a_setting_of_tomorrow": {"a": 1},
    "extra_body": {"a_setting_of_tomorrow": 1},
    "options": {"a_setting_of_tomorrow": 1},
    "metadata": {"disable_global_guardrails": "true"},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("route", ["openai", "openai-chat", "fireworks-chat", "scale-chat"])
async def test_a_gateway_gets_declared_fields_only(
    route: str, name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream, "", more="gateway: true,") as (_, client):
        status, headers, _ = await ask(client, route, {name: SETTINGS[name]})

    if status == 200:
        [asked] = upstream.requests
        assert name not in asked.json
        assert f"{name} dropped" in headers["x-headrace-warning"]
    else:
        assert (status, upstream.requests) == (422 if route == "scale-chat" else 400, [])


@pytest.mark.parametrize("name", SETTINGS)
async def test_a_gateway_gets_an_accepted_field(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    more = f"gateway: true, accepts: [{name}],"
    async with proxied(tmp_path, upstream, "", more=more) as (_, client):
        status, _, _ = await ask(client, "openai-chat", {name: SETTINGS[name]})

    [asked] = upstream.requests
    assert (status, asked.json[name]) == (200, SETTINGS[name])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        *(({"provider": name}, True) for name in sorted(GATEWAYS)),
        ({"base_url": "https://openrouter.ai/api/v1"}, True),
        ({"base_url": "https://ai-gateway.vercel.sh/v1"}, True),
        ({"base_url": "http://litellm:4000"}, True),
        ({"gateway": True}, True),
        ({"gateway": False, "provider": "litellm"}, False),
        ({}, False),
        ({"provider": "vllm"}, False),
    ],
    ids=str,
)
def test_gateways_are_recognized(settings: dict[str, Any], expected: bool) -> None:
    upstream = {"dialect": "openai", "base_url": "https://llm.example/v1", **settings}

    assert is_gateway(UpstreamConfig.model_validate(upstream)) is expected
