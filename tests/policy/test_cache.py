"""Who says whether answers are kept: rules before deployments, those before their policies."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from proxy.policy.decide import decide
from proxy.policy.review.sample_call import chat_body, sample_call
from proxy.policy.store import read_folder
from proxy.types import CacheRule
from tests.for_each import for_each

POLICIES = """\
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
    text = POLICIES.replace("CACHE", policy).replace("OWN", own_text).replace("RULES", rules)
    (tmp_path / "p.yaml").write_text(text)
    snapshot = read_folder(tmp_path, None)
    key = snapshot.key_named("widget")
    assert key is not None

    call = sample_call(chat_body("chat"), {}, datetime(2026, 1, 1, tzinfo=UTC))

    assert decide(snapshot, key, call).cache == rule
