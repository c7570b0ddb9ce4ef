"""Cache sections of policies, deployments and rules."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from proxy.policy.compile.rules import compile_cache
from proxy.policy.decide import decide
from proxy.policy.review.check import check_folder
from proxy.policy.review.sample_call import chat_body, sample_call
from proxy.policy.schema import CacheConfig
from proxy.policy.store import read_folder
from proxy.types import CacheRule, SemanticCacheRule
from tests.for_each import for_each

POLICIES = """\
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
policies:
  public:
    match: all
    cache: {semantic: {embeddings: vectors}}
    rules: [{name: r, cache: {semantic: {embeddings: vectors, mode: serve, max_temperature: 0.3}}}]
keys: {widget: {sha256: AAAA, deployments: [chat]}}
deployments:
  chat: {targets: [{upstream: up, model: m}], policy: public}
  vectors: {targets: [{upstream: up, model: e, price: {input: 1}}]}
""".replace("AAAA", "0" * 64)


@for_each(
    ("config", "rule"),
    [
        ({}, None),
        ({"semantic": {"embeddings": "e"}}, SemanticCacheRule("e", "shadow", 0.95, 1.0, 1.0)),
        (
            {
                "semantic": {
                    "embeddings": "e",
                    "mode": "serve",
                    "threshold": 0.9,
                    "deadline": "300ms",
                    "max_temperature": 0.3,
                }
            },
            SemanticCacheRule("e", "serve", 0.9, 0.3, 0.3),
        ),
    ],
)
def test_semantic_cache_shadows_first(
    config: dict[str, object], rule: SemanticCacheRule | None
) -> None:
    result = compile_cache(CacheConfig.model_validate(config))

    assert result == CacheRule(3600.0, semantic=rule)


def test_a_rule_decides_over_its_policy(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES)
    snapshot = read_folder(tmp_path, None)
    key = snapshot.key_named("widget")
    assert key is not None

    call = sample_call(chat_body("chat"), {}, datetime(2026, 1, 1, tzinfo=UTC))
    rule = decide(snapshot, key, call).cache

    assert rule is not None
    assert rule.semantic == SemanticCacheRule("vectors", "serve", max_temperature=0.3)


def test_a_deployment_that_only_a_cache_calls_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES)

    report = check_folder(tmp_path, {})

    assert "cannot be called" not in " ".join(map(str, report.warnings))


CACHE_POLICIES = """\
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
policies:
  house: {cache: {ttl: 1h, namespace: house}}
  public: {extends: house, match: all, CACHE rules: RULES}
keys: {widget: {sha256: AAAA, deployments: [chat]}}
deployments: {chat: {targets: [{upstream: up, model: m}], policy: public OWN}}
""".replace("AAAA", "0" * 64)
HOUSE = CacheRule(3600.0, namespace="house")
STREAMED = "[{name: r, when: {stream: false}, cache: SAID}]"


@for_each(
    ("policy", "own_text", "rules", "rule"),
    [
        ("", "", "[]", HOUSE),
        ("cache: {ttl: 5m, store: redis},", "", "[]", CacheRule(300.0, store="redis")),
        ("cache: off,", "", "[]", None),
        ("", ", cache: {ttl: 1m, by_user: true}", "[]", CacheRule(60.0, by_user=True)),
        ("", ", cache: off", "[]", None),
        ("", ", cache: off", STREAMED.replace("SAID", "{ttl: 2m}"), CacheRule(120.0)),
        ("", "", STREAMED.replace("SAID", "'off'"), None),
    ],
)
def test_the_nearest_word_counts(
    policy: str, own_text: str, rules: str, rule: CacheRule | None, tmp_path: Path
) -> None:
    text = CACHE_POLICIES.replace("CACHE", policy).replace("OWN", own_text).replace("RULES", rules)
    (tmp_path / "p.yaml").write_text(text)
    snapshot = read_folder(tmp_path, None)
    key = snapshot.key_named("widget")
    assert key is not None

    call = sample_call(chat_body("chat"), {}, datetime(2026, 1, 1, tzinfo=UTC))

    assert decide(snapshot, key, call).cache == rule
