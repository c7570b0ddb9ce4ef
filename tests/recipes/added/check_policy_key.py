"""Tests of the added policy key, run in a copy of the repository."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import policies_for, running_proxy
from tests.doubles import ScriptedUpstream

TARGETS = "    targets: [{upstream: openai, model: smol-legacy, endpoint: completions}]\n"


async def test_new_key_has_effect(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    policies = policies_for(upstream.url)
    assert policies.count(TARGETS) == 1
    policies = policies.replace(TARGETS, f"{TARGETS}    acme_notice: retired in May\n")
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        replies = [await proxy.complete(model=name) for name in ("legacy-only", "support-chat")]

    warnings = [reply.headers.get("x-headrace-warning") for reply in replies]
    assert warnings == ["retired in May", None]
