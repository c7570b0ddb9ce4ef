"""Which stores of kept answers a revision asks for, by deployments and by rules."""

from __future__ import annotations

from pathlib import Path

from proxy.policy.catalog import cache_stores
from proxy.policy.store import read_folder

POLICIES = f"""\
upstreams: {{up: {{dialect: openai, base_url: 'https://api.example.test'}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [bare, kept, ruled]}}}}
policies:
  keeping: {{cache: {{ttl: 1h, store: sqlite}}}}
  ruling:
    match: all
    rules:
      - {{name: shared, when: {{stream: true}}, cache: {{ttl: 1h, store: redis}}}}
      - {{name: never, when: {{stream: false}}, cache: off}}
    extends: keeping
deployments:
  bare: {{targets: [{{upstream: up, model: m}}]}}
  kept: {{policy: keeping, targets: [{{upstream: up, model: m}}]}}
  ruled: {{policy: ruling, targets: [{{upstream: up, model: m}}]}}
"""


def test_stores_are_those_of_deployments_and_of_rules(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES)

    assert cache_stores(read_folder(tmp_path, None)) == {
        "sqlite": ["kept", "ruled"],
        "redis": ["ruled"],
    }
