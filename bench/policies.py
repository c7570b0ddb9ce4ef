"""The policies that are measured: nothing but a key, tags and a price; each part; and all of it,
with as many deployments, keys, rules and tags as are wanted."""

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
"""What each way of measuring adds to the head. ``mid`` is all but guards."""
KEPT = frozenset({"mid", "everything"})
"""Where there is a ledger and calls are traced."""


KEYS_A_FILE = 10_000  # a file may have 100,000 values
NEVER = (
    "{tag: {team: search}}",
    "{model: {glob: 'gpt-9*'}}",
    "{header: {x-region: eu}}",
    "{tag: {env: staging}}",
)
"""When rules hold: in none of our calls."""


@dataclass(frozen=True)
class Sizes:
    """How much of what there is in the policies, beside what each of ours has: one deployment and
    one key, two rules, three tags."""

    deployments: int = 0
    keys: int = 0
    rules: int = 0
    tags: int = 0


NO_MORE = Sizes()


def write(folder: Path, parts: str, port: int, more: Sizes = NO_MORE) -> None:
    """Write the policies whose upstream listens on this port."""
    tags = "".join(f", tag_{number}: a" for number in range(more.tags))
    head = HEAD.format(port=port, digest=digest(KEY), tags=tags)
    (folder / "p.yaml").write_text(head + "".join(_rules(more.rules)) + PARTS[parts])
    if more.tags:
        known = {f"tag_{number}": ["a", "b"] for number in range(more.tags)}
        (folder / "tags.yaml").write_text(json.dumps({"tags": known}))
    if more.deployments:
        target = {"upstream": "openai", "model": "gpt-4o-mini"}
        others = {f"other-{number}": {"targets": [target]} for number in range(more.deployments)}
        (folder / "deployments.yaml").write_text(json.dumps({"deployments": others}))
    for first in range(0, more.keys, KEYS_A_FILE):
        names = [f"key-{at}" for at in range(first, min(first + KEYS_A_FILE, more.keys))]
        keys = {name: {"sha256": digest(name), "deployments": ["support-chat"]} for name in names}
        (folder / f"keys-{first}.yaml").write_text(json.dumps({"keys": keys}))


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _rules(number: int) -> Iterator[str]:
    for at in range(number):
        when = NEVER[at % len(NEVER)]
        yield f"      - {{name: rule-{at}, when: {when}, cap: {{max_tokens: {500 + at}}}}}\n"
