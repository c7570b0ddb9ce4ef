"""The policies that are measured: nothing but a key, tags and a price; each part; and all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

KEY = "hr-bench-key"
HEAD = """
upstreams:
  openai: {{dialect: openai, base_url: 'http://127.0.0.1:{port}/v1', provider: openai}}
tags: {{team: [support, search], env: [prod, staging], cost_center: {{pattern: 'CC-[0-9]{{4}}'}}}}
keys:
  bench: {{sha256: {digest}, deployments: [support-chat], tags: {{team: support}}}}
deployments:
  support-chat:
    tags: {{env: prod, cost_center: CC-1001}}
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
      - {name: at-once, concurrency: 5000, per: deployment}
      - {name: team-day, usd: 1000000 per day, per: tag.team}
      - {name: team-month, usd: 9000000 per month, per: tag.team, warn_at: 80%}
"""
GUARDS = """
    input:
      - {guard: keywords, name: rivals, words: [hydropolis, aquacorp, waterworld], action: block}
      - {guard: secrets, action: block}
      - {guard: pii, entities: [email, phone, card, iban], regions: [US, DE], action: mask}
      - {guard: injection, by_rules: true, by_model: false, action: flag}
    output:
      - {guard: keywords, name: rivals-out, words: [hydropolis, aquacorp], action: mask}
      - {guard: secrets, name: secrets-out, action: mask}
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
"""Where there is a ledger and every call is traced."""


def write(folder: Path, parts: str, port: int) -> None:
    """Write the policies whose upstream listens on this port."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    (folder / "p.yaml").write_text(HEAD.format(port=port, digest=digest) + PARTS[parts])
