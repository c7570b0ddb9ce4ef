"""Caches from files: what is said of other wordings, and what they need."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from proxy.embedding.model import HINT, EmbeddingModel
from proxy.policy.compile.cache import kept, missing
from proxy.policy.decide import decide
from proxy.policy.files.load import load
from proxy.policy.review.sample_call import example, suppose
from proxy.policy.schema import CacheConfig
from proxy.policy.store import read_folder
from proxy.types import CacheRule, Semantic
from tests.cache.stores import until
from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream, answer, chat
from tests.test_pipeline import BEARER

POLICIES = """\
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
policies:
  public:
    match: all
    cache: {semantic: {}}
    rules: [{name: r, cache: {semantic: {mode: enforce, threshold: 0.95}}}]
keys: {widget: {sha256: AAAA, deployments: [chat]}}
deployments:
  chat: {targets: [{upstream: up, model: m}], policy: public, cache: {semantic: {model: /m}}}
""".replace("AAAA", "0" * 64)


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ({}, None),
        ({"semantic": {}}, Semantic(0.9, shadow=True)),
        ({"semantic": {"mode": "enforce"}}, Semantic(0.9, shadow=False)),
        (
            {"semantic": {"threshold": 0.95, "model": "/models/bge", "max_temperature": 0.3}},
            Semantic(0.95, shadow=True, model="/models/bge", max_temperature=0.3),
        ),
    ],
)
def test_other_wordings_are_only_noted_unless_it_is_said(
    said: dict[str, object], rule: Semantic | None
) -> None:
    made = kept(CacheConfig.model_validate(said))

    assert made is not None
    assert made.by == CacheRule(3600.0, semantic=rule)


def test_what_a_cache_lacks_is_said_where_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES)
    policies = load(tmp_path).policies

    assert list(missing(policies, lambda model: HINT if model else None)) == [
        (("deployments", "chat", "cache", "semantic"), HINT)
    ]
    assert [path[:2] for path, _ in missing(policies, lambda model: HINT)] == [
        ("policies", "public"),
        ("policies", "public"),
        ("deployments", "chat"),
    ]


def test_without_the_extra_such_a_policy_is_refused_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES.replace(", cache: {semantic: {model: /m}}", ""))
    script = """
import sys
sys.modules["onnxruntime"] = None
from proxy.__main__ import main
sys.exit(main(["check", sys.argv[1]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    told = [line for line in (done.stdout + done.stderr).splitlines() if HINT in line]
    assert [line.split(" ")[:2] for line in told] == [
        ["p.yaml:5:13:", "policies.public.cache.semantic:"],
        ["p.yaml:6:31:", "policies.public.rules.0.cache.semantic:"],
    ]


def test_a_rule_decides_over_its_policy(tmp_path: Path, model: EmbeddingModel) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES.replace(", cache: {semantic: {model: /m}}", ""))
    snapshot = read_folder(tmp_path, None)
    key = snapshot.key_named("widget")
    assert key is not None

    call = suppose(example("chat"), {}, datetime(2026, 1, 1, tzinfo=UTC))
    rule = decide(snapshot, key, call).cache

    assert rule is not None
    assert rule.semantic == Semantic(0.95, shadow=False)


async def ask(client: aiohttp.ClientSession, text: str) -> str:
    body = {"model": "smol", "messages": [{"role": "user", "content": text}]}
    async with client.post("/v1/chat/completions", headers=BEARER, json=body) as response:
        await response.read()
        return response.headers["x-headrace-cache"]


async def test_a_policy_that_says_so_has_other_wordings_answered(
    tmp_path: Path, upstream: ScriptedUpstream, model: EmbeddingModel
) -> None:
    upstream.answer_with(answer(chat()))
    policy = "policies: {default: {cache: {semantic: {mode: enforce}}}}"
    async with (
        running_proxy(tmp_path / "policies", f"{world(upstream.url)}\n{policy}\n") as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        calls = 0

        async def found() -> bool:  # the first questions come before the model is loaded
            nonlocal calls
            calls += 1
            await ask(client, f"Is line {calls} free?")
            return await ask(client, f"Please, is line {calls} free?") == "hit"

        await until(found)
        records = await proxy.sink.wait(2 * calls)

    assert records[-1].cache == "hit_semantic"
    assert records[-1].likeness > 0.9


async def test_a_model_that_cannot_be_used_costs_hits_and_nothing_else(
    tmp_path: Path, upstream: ScriptedUpstream, model: EmbeddingModel
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"not a model")
    (folder / "tokenizer.json").write_bytes(b"{}")
    upstream.answer_with(answer(chat()))
    policy = f"policies: {{default: {{cache: {{semantic: {{mode: enforce, model: '{folder}'}}}}}}}}"
    async with (
        running_proxy(tmp_path / "policies", f"{world(upstream.url)}\n{policy}\n") as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
        asyncio.timeout(20),
    ):
        texts = ("Is line 1 free?", "Please, is line 1 free?", "Is line 1 free?")
        results = [await ask(client, text) for text in texts]

    assert results == ["miss", "miss", "hit"]
