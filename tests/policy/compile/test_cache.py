"""Caches from files: what is said of other wordings."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from proxy.policy.compile.cache import kept
from proxy.policy.decide import decide
from proxy.policy.review.sample_call import example, suppose
from proxy.policy.schema import CacheConfig
from proxy.policy.store import read_folder
from proxy.types import CacheRule, Semantic
from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream, answer, chat
from tests.for_each import for_each
from tests.test_pipeline import BEARER

POLICIES = """\
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
policies:
  public:
    match: all
    cache: {semantic: {}}
    rules: [{name: r, cache: {semantic: {mode: enforce, max_temperature: 0.3}}}]
keys: {widget: {sha256: AAAA, deployments: [chat]}}
deployments:
  chat: {targets: [{upstream: up, model: m}], policy: public}
""".replace("AAAA", "0" * 64)


@for_each(
    ("said", "rule"),
    [
        ({}, None),
        ({"semantic": {}}, Semantic(shadow=True)),
        ({"semantic": {"mode": "enforce"}}, Semantic(shadow=False)),
        (
            {"semantic": {"max_temperature": 0.3}},
            Semantic(shadow=True, max_temperature=0.3),
        ),
    ],
)
def test_other_wordings_are_only_noted_unless_it_is_said(
    said: dict[str, object], rule: Semantic | None
) -> None:
    made = kept(CacheConfig.model_validate(said))

    assert made is not None
    assert made.by == CacheRule(3600.0, semantic=rule)


def test_a_rule_decides_over_its_policy(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES)
    snapshot = read_folder(tmp_path, None)
    key = snapshot.key_named("widget")
    assert key is not None

    call = suppose(example("chat"), {}, datetime(2026, 1, 1, tzinfo=UTC))
    rule = decide(snapshot, key, call).cache

    assert rule is not None
    assert rule.semantic == Semantic(shadow=False, max_temperature=0.3)


async def ask(client: aiohttp.ClientSession, text: str) -> str:
    body = {"model": "smol", "messages": [{"role": "user", "content": text}]}
    async with client.post("/v1/chat/completions", headers=BEARER, json=body) as response:
        await response.read()
        return response.headers["x-headrace-cache"]


async def test_a_policy_that_says_so_has_other_wordings_answered(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat()))
    policy = "policies: {default: {cache: {semantic: {mode: enforce}}}}"
    async with (
        running_proxy(tmp_path / "policies", f"{world(upstream.url)}\n{policy}\n") as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        texts = ("Is line 1 free?", "Please, is line 1 free?")
        results = [await ask(client, text) for text in texts]
        records = await proxy.sink.wait(2)

    assert results == ["miss", "hit_semantic"]
    assert records[-1].cache == "hit_semantic"
    assert records[-1].other_words
