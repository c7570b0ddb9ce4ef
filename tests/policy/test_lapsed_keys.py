"""A call whose key counts no more: its client learns nothing, the operator which key and why."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aiohttp import ClientSession

from tests.cli.test_init import serving
from tests.conftest import world
from tests.doubles import ScriptedUpstream


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


KEYS = f"""\
keys:
  old: {{sha256: {digest("text-of-old")}, expires: 2026-01-01, deployments: [support-chat]}}
  gone: {{sha256: {digest("text-of-gone")}, deployments: [support-chat]}}
  half: {{sha256: [{digest("text-of-half")}, {digest("other")}], deployments: [support-chat]}}
"""
REVOKED = f"revoked: [gone, {digest('text-of-half')}, {digest('text-of-nobody')}]\n"
LAPSES = [
    ("text-of-old", "expired", "old"),
    ("text-of-gone", "revoked", "gone"),
    ("text-of-half", "revoked", "half"),
    ("text-of-nobody", "revoked", None),
    ("text-of-no-key", "unknown", None),
    (None, "missing", None),
]


async def refuse(text: str | None, url: str) -> tuple[int, str]:
    """Make a call with a text; return what its client reads, but for the id."""
    headers = {"x-request-id": "r"} | ({"authorization": f"Bearer {text}"} if text else {})
    body = {"model": "support-chat", "prompt": "Hi"}
    async with (
        ClientSession() as client,
        client.post(f"{url}/v1/completions", headers=headers, json=body) as response,
    ):
        return response.status, await response.text()


async def test_logs_name_of_refused_key(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    policies = world(upstream.url).replace("\nkeys:\n", f"\n{KEYS}") + REVOKED
    async with serving(tmp_path / "p", policies) as (served, url):
        answers = [await refuse(text, url) for text, _, _ in LAPSES]
        admin = next(line["admin"] for line in served.lines if line["event"] == "listening")
        lines = [await served.line("call") for _ in LAPSES]
        async with ClientSession() as client, client.get(f"http://{admin}/metrics") as response:
            metrics = await response.text()

    *refused, without_key = answers
    assert len(set(refused)) == 1
    assert refused[0][0] == without_key[0] == 401
    assert [line["unauthorized"] for line in lines] == [
        {"reason": reason, "key": key} for _, reason, key in LAPSES
    ]
    assert not any("text-of" in str(line) for line in lines)
    for _, reason, key in LAPSES:
        series = f'{{key="{key or "none"}",reason="{reason}"}} 1.0'
        assert f"headrace_unauthenticated_requests_total{series}" in metrics
