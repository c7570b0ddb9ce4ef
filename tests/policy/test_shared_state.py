"""Upstreams that keep responses of several keys are told where no secret seals their ids."""

from __future__ import annotations

from pathlib import Path

from proxy.policy.catalog import shared_response_stores
from proxy.policy.store import read_folder
from tests.cli.test_init import serving
from tests.for_each import for_each

ROUTED = "rules: [{name: r, when: {stream: true}, targets: [{upstream: up, model: m}]}]"
POLICIES = f"""\
upstreams:
  up: {{dialect: openai, base_url: 'https://api.example.test'}}
  spare: {{dialect: openai, base_url: 'https://spare.example.test'}}
  claude: {{dialect: anthropic, base_url: 'https://claude.example.test'}}
policies: {{routing: {{{ROUTED}}}}}
deployments:
  chats: {{targets: [{{upstream: up, model: m, endpoint: chat}}]}}
  messages: {{targets: [{{upstream: claude, model: m}}]}}
  keeps: {{targets: [{{upstream: up, model: m}}]}}
  falls: {{targets: [{{upstream: claude, model: m}}], fallback: [{{upstream: spare, model: m}}]}}
  routed: {{policy: routing, targets: [{{upstream: claude, model: m}}]}}
keys:
  widget: {{sha256: {"0" * 64}, deployments: [ONE]}}
  search: {{sha256: {"1" * 64}, deployments: [OTHER]}}
"""


@for_each(
    ("one", "other", "shared"),
    [
        ("keeps", "keeps", ["up"]),
        ("keeps, falls", "falls, routed", ["spare", "up"]),
        ("keeps, routed", "falls, chats, messages", []),
        ("chats, messages", "chats, messages", []),
    ],
)
def test_shares_stored_objects(one: str, other: str, shared: list[str], tmp_path: Path) -> None:
    text = POLICIES.replace("ONE", one).replace("OTHER", other)
    (tmp_path / "p.yaml").write_text(text)

    assert shared_response_stores(read_folder(tmp_path, None)) == shared


async def test_it_is_told_at_the_start_where_nothing_seals_ids(tmp_path: Path) -> None:
    text = POLICIES.replace("ONE", "keeps").replace("OTHER", "keeps")
    found = []
    for at, environ in enumerate(({}, {"HEADRACE_SECRET": "a secret of replicas"})):
        async with serving(tmp_path / str(at), text, **environ) as (served, _):
            pass
        found.append([line for line in served.lines if line["event"] == "ids.unsealed"])

    assert [len(lines) for lines in found] == [1, 0]
    assert found[0][0]["upstreams"] == ["up"]
