"""Which name stands for each model in a list: one that leads to it, and nowhere else."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

import pytest

from proxy.policy.decide.snapshot import VirtualKey
from proxy.policy.files.load import packaged_prices
from proxy.policy.store import read_folder

POLICIES = f"""
upstreams:
  openai: {{dialect: openai, base_url: 'https://api.example.test/v1'}}
  local: {{dialect: openai, base_url: 'http://127.0.0.1:1', provider: nobody}}
  other: {{dialect: scale, base_url: 'https://scale.example.test'}}
prices: {{}}
price_table: {{as_of: 2026-03-01}}
keys:
  widget: {{sha256: {hashlib.sha256(b"k").hexdigest()}, deployments: [%s]}}
deployments:
  chat: {{targets: [{{upstream: openai, model: gpt-4o-mini-2024-07-18}}]}}
  chat-too: {{targets: [{{upstream: openai, model: gpt-4o-mini-2024-07-18}}]}}
  local-chat: {{targets: [{{upstream: local, model: gpt-4o-mini-2024-07-18}}]}}
  shared:
    targets:
      - {{upstream: openai, model: claude-20259999, weight: 1}}
      - {{upstream: local, model: claude-20259999, weight: 1}}
      - {{upstream: other, model: never, weight: 0}}
  default: {{default: true, targets: [{{upstream: openai, model: gpt-4o-mini-2024-07-18}}]}}
  one: {{targets: [{{upstream: openai, model: one}}]}}
  two: {{targets: [{{upstream: openai, model: one}}, {{upstream: openai, model: two}}]}}
  several:
    targets: [{{upstream: openai, model: one}}, {{upstream: other, model: two}}]
"""


def key(folder: Path, *deployments: str) -> VirtualKey:
    (folder / "p.yaml").write_text(POLICIES % ", ".join(deployments))
    return read_folder(folder, None).keys["widget"]


@pytest.mark.parametrize(
    ("deployments", "names"),
    [
        (["chat"], ["chat", "gpt-4o-mini-2024-07-18"]),
        (
            ["chat", "local-chat"],
            [
                "chat",
                "local-chat",
                "nobody/gpt-4o-mini-2024-07-18",
                "openai/gpt-4o-mini-2024-07-18",
            ],
        ),
        (["chat", "chat-too"], ["chat", "chat-too"]),
        (["chat", "default"], ["chat", "default", "gpt-4o-mini-2024-07-18"]),
        (["shared"], ["shared", "claude-20259999"]),
        (["several"], ["several", "one", "two"]),
        (["one"], ["one"]),
        (["two"], ["two", "one", "openai/two"]),
    ],
    ids="+".join,
)
def test_lists_one_id_per_model(deployments: list[str], names: list[str], tmp_path: Path) -> None:
    listing = key(tmp_path, *deployments).models

    assert [model.id for model in listing.values() if model.is_main] == names


def test_every_name_of_a_key_is_in_its_list(tmp_path: Path) -> None:
    result = key(tmp_path, "chat", "shared", "several")

    assert set(result.models) == set(result.by_model)
    assert list(result.models)[:3] == ["chat", "several", "shared"]
    assert list(result.models)[3:] == sorted(list(result.models)[3:])


def test_default_price_table_has_packaged_date(tmp_path: Path) -> None:
    packaged = packaged_prices().price_table.as_of
    (tmp_path / "p.yaml").write_text(
        f"""
upstreams: {{local: {{dialect: scale, base_url: 'https://scale.example.test'}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [chat]}}}}
deployments: {{chat: {{targets: [{{upstream: local, model: smol}}]}}}}
"""
    )
    listing = read_folder(tmp_path, None).keys["widget"].models

    assert {model.created for model in listing.values()} == {packaged}


def test_a_model_is_as_old_as_its_name_says_else_as_the_table_of_prices(tmp_path: Path) -> None:
    listing = key(tmp_path, "chat", "shared", "several").models

    assert listing["chat"].created == listing["gpt-4o-mini-2024-07-18"].created == date(2024, 7, 18)
    assert listing["claude-20259999"].created == listing["one"].created == date(2026, 3, 1)


def test_a_model_is_its_providers_and_what_several_have_is_ours(tmp_path: Path) -> None:
    listing = key(tmp_path, "local-chat", "shared", "several").models

    owners = {name: listing[name].owner for name in ("local-chat", "shared", "one", "two")}
    assert owners == {"local-chat": "nobody", "shared": "headrace", "one": "openai", "two": "other"}
    assert listing["local/claude-20259999"].owner == "nobody"
