"""Whatever one key sends, the guards of another key's calls look at its texts, and in time."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from tests.conftest import running_proxy
from tests.doubles import ScriptedUpstream, answer, chat

EMAIL = "jane@example.com"
LINE = "The river rüns through the town, and on 12 market days 4 people cross it, key-12 a@b. "
PROMPT = [{"role": "user", "content": f"{LINE * 2000} Write to {EMAIL}."}]
ADDRESSES = [f"é@{n % 1000:03d}{'.' if n % 4 else ','}de" for n in range(12_000)]
PARTS = [{"type": "text", "text": each} for each in [*ADDRESSES, *("é@a,de",) * 8_000]]
ATTACK = [{"role": "user", "content": PARTS}]


def policies(upstream: str, on_error: str) -> str:
    digests = {key: hashlib.sha256(f"hr-{key}".encode()).hexdigest() for key in ("large", "small")}
    keys = ", ".join(
        f"{key}: {{sha256: {digest}, deployments: [{key}]}}" for key, digest in digests.items()
    )
    deadlines = {"large": "60s", "small": "300ms"}
    rules = {
        key: f"[{{guard: pii, action: mask, deadline: {deadline}, on_error: {on_error}}}]"
        for key, deadline in deadlines.items()
    }
    return f"""
upstreams: {{u: {{dialect: openai, base_url: '{upstream}/v1'}}}}
keys: {{{keys}}}
deployments:
  large: {{targets: [{{upstream: u, model: large}}], policy: large}}
  small: {{targets: [{{upstream: u, model: small}}], policy: small}}
policies:
  large: {{match: all, input: {rules["large"]}}}
  small: {{match: all, input: {rules["small"]}}}
"""


@pytest.mark.parametrize("on_error", ["closed", "open"])
async def test_guards_stay_on(on_error: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """Two bodies of 20,000 parts keep the threads of guards at work for many deadlines."""
    upstream.answer_with(answer(chat()))

    async with (
        running_proxy(tmp_path / "policies", policies(upstream.url, on_error)) as proxy,
        asyncio.TaskGroup() as group,
    ):

        async def ask(key: str, messages: object) -> int:
            headers = {"authorization": f"Bearer hr-{key}"}
            body = {"model": key, "messages": messages}
            path = "/v1/chat/completions"
            async with proxy.client.post(path, headers=headers, json=body) as answered:
                await answered.read()
                return answered.status

        await ask("large", PROMPT)  # loads what the guard needs
        attacks = [group.create_task(ask("large", ATTACK)) for _ in range(2)]
        statuses = [await ask("small", PROMPT) for _ in range(4)]
        assert {await attack for attack in attacks} == {200}

    sent_items = [
        json.dumps(request.json)
        for request in upstream.requests
        if request.json["model"] == "small"
    ]
    assert statuses == [200] * 4
    assert len(sent_items) == 4
    assert not [body for body in sent_items if EMAIL in body]
