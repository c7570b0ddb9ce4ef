"""Policies of the benchmarks: a minimum, each feature, all features, and any number of objects."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KEY = "hr-bench-key"
HEAD = """
upstreams:
  openai:
    dialect: openai
    base_url: 'http://127.0.0.1:{port}/v1'
    provider: openai
    timeouts: {{connect: 1m}}
tags: {{team: [support, search], env: [prod, staging], cost_center: {{pattern: 'CC-[0-9]{{4}}'}}}}
keys:
  bench: {{sha256: {digest}, deployments: [support-chat], tags: {{team: support}}}}
deployments:
  support-chat:
    tags: {{env: prod, cost_center: CC-1001{tags}}}
    policy: house
    targets:
      - upstream: openai
        model: gpt-4o-mini
        price: {{input: 0.15, cached_input: 0.075, output: 0.6}}
policies:
  house:
    match: all
    rules:
      - {{name: bounded, when: {{not: {{endpoint: embeddings}}}}, cap: {{max_tokens: 4096, n: 4}}}}
      - {{name: steady, when: {{tag: {{env: staging}}}}, set: {{temperature: 0, seed: 1}}}}
"""
LIMITS = """
    limits:
      - {name: calls-per-key, requests: 6000000 per minute, per: key}
      - {name: calls-per-team, requests: 6000000 per minute, per: tag.team}
      - {name: tokens-per-key, tokens: 9000000000 per minute, per: key}
      - {name: at-once, concurrency: 50000, per: deployment}
      - {name: team-day, usd: 1000000 per day, per: tag.team}
      - {name: team-month, usd: 9000000 per month, per: tag.team, warn_at: 80%}
"""
GUARDS = """
    input:
      - {guard: keywords, name: rivals, words: [hydropolis, aquacorp, waterworld], action: block,
         deadline: 30s}
      - {guard: secrets, action: block, deadline: 30s}
      - {guard: pii, entities: [email, phone, card, iban], regions: [US, DE], action: mask,
         deadline: 30s}
      - {guard: injection, action: flag, deadline: 30s}
    output:
      - {guard: keywords, name: rivals-out, words: [hydropolis, aquacorp], action: mask,
         deadline: 30s}
      - {guard: secrets, name: secrets-out, action: mask, deadline: 30s}
    opaque: allow
"""
CACHE = """
    cache: {ttl: 1h}
"""
PARTS = {
    "bare": "",
    "limits": LIMITS,
    "guards": GUARDS,
    "cache": CACHE,
    "mid": LIMITS + CACHE,
    "everything": LIMITS + GUARDS + CACHE,
}
"""Policy text per feature set. ``mid`` is everything except guards."""
EXPORTING = frozenset({"mid", "everything"})
"""Feature sets that run with a ledger and exported spans."""

MAX_KEYS_PER_FILE = 10_000  # a file may have 100,000 values
UNMATCHED_CONDITIONS = (
    "{tag: {team: search}}",
    "{model: {glob: 'gpt-9*'}}",
    "{header: {x-region: eu}}",
    "{tag: {env: staging}}",
)


@dataclass(frozen=True)
class Sizes:
    """Objects in addition to one deployment, one key, two rules and three tags."""

    deployments: int = 0
    keys: int = 0
    rules: int = 0
    tags: int = 0


NO_EXTRAS = Sizes()


def write(folder: Path, parts: str, port: int, extra: Sizes = NO_EXTRAS) -> None:
    """Write policies with the feature set ``parts`` and an upstream on ``port``."""
    tags = "".join(f", tag_{number}: a" for number in range(extra.tags))
    head = HEAD.format(port=port, digest=digest(KEY), tags=tags)
    (folder / "p.yaml").write_text(head + "".join(_rules(extra.rules)) + PARTS[parts])
    if extra.tags:
        values = {f"tag_{number}": ["a", "b"] for number in range(extra.tags)}
        (folder / "tags.yaml").write_text(json.dumps({"tags": values}))
    if extra.deployments:
        target = {"upstream": "openai", "model": "gpt-4o-mini"}
        added = {f"other-{number}": {"targets": [target]} for number in range(extra.deployments)}
        (folder / "deployments.yaml").write_text(json.dumps({"deployments": added}))
    for start in range(0, extra.keys, MAX_KEYS_PER_FILE):
        stop = min(start + MAX_KEYS_PER_FILE, extra.keys)
        names = [f"key-{number}" for number in range(start, stop)]
        keys = {name: {"sha256": digest(name), "deployments": ["support-chat"]} for name in names}
        (folder / f"keys-{start}.yaml").write_text(json.dumps({"keys": keys}))


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _rules(count: int) -> Iterator[str]:
    for number in range(count):
        condition = UNMATCHED_CONDITIONS[number % len(UNMATCHED_CONDITIONS)]
        cap = f"{{max_tokens: {500 + number}}}"
        yield f"      - {{name: rule-{number}, when: {condition}, cap: {cap}}}\n"
