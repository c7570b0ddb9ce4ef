"""Prices of targets and names on a day."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.policy.compile import compile_policies
from proxy.policy.files.load import load_policies
from proxy.prices.listing import format_json, format_table, list_prices

POLICIES = """\
upstreams:
  openai: {dialect: openai, base_url: 'https://api.example.test', provider: openai}
  local: {dialect: openai, base_url: 'http://127.0.0.1:9', provider: none}
keys: {widget: {sha256: AAAA, deployments: [support-chat]}}
deployments:
  support-chat:
    targets: [{upstream: openai, model: gpt-4o-mini-2026}]
    fallback:
      - {upstream: openai, model: gpt-4o, price: {from: 2026-02-01, input: 1.50, output: 2}}
      - {upstream: local, model: smol}
price_table: {as_of: 2026-03-01}
prices:
  openai:
    gpt-4o: {input: 5, output: 15}
    gpt-4o-mini*:
      - {from: 2026-06-01, input: 0.1, output: 0.5, tiers: [{above: 1000, input: 0.2}]}
      - {input: 0.15, cached_input: 0.075, output: 0.6}
    gpt-4o-audio: [{from: 2027-01-01, input: 1, output: 2}]
""".replace("AAAA", "0" * 64)


def listing(folder: Path, day: str, model: str | None = None) -> dict[str, Any]:
    (folder / "p.yaml").write_text(POLICIES)
    loaded = load_policies(folder)
    return list_prices(loaded, compile_policies(loaded, None), date.fromisoformat(day), model)


def inputs(expected: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    return [
        (line["model"], line["by"], line["price"]["input"] if line["price"] else "-")
        for line in expected["prices"]
    ]


@pytest.mark.parametrize(
    ("day", "mini", "target_price"),
    [("2026-01-01", "0.15", "-"), ("2026-02-01", "0.15", "1.5"), ("2026-06-01", "0.1", "1.5")],
)
def test_targets_have_current_price(day: str, mini: str, target_price: str, tmp_path: Path) -> None:
    assert inputs(listing(tmp_path, day)) == [
        ("gpt-4o-mini-2026", "gpt-4o-mini*", mini),
        ("gpt-4o", "target", target_price),
        ("smol", None, "-"),
    ]


def test_listing_shows_rows_of_a_name(tmp_path: Path) -> None:
    assert inputs(listing(tmp_path, "2026-06-01", "gpt-4o*")) == [
        ("gpt-4o-mini-2026", "gpt-4o-mini*", "0.1"), ("gpt-4o", "target", "1.5"),
        ("gpt-4o", "gpt-4o", "5"), ("gpt-4o-mini*", "gpt-4o-mini*", "0.1"),
        ("gpt-4o-audio", "gpt-4o-audio", "-")
    ]  # fmt: skip


def test_table_format(tmp_path: Path) -> None:
    lines = format_table(listing(tmp_path, "2026-06-01")).splitlines()

    assert lines == [
        "USD per million tokens on 2026-06-01; price table of 2026-03-01",
        "upstream  provider  model             source        from        input                 "
        "output",
        "openai    openai    gpt-4o-mini-2026  gpt-4o-mini*  2026-06-01  0.1 (0.2 above 1000)  0.5",
        "openai    openai    gpt-4o            target        2026-02-01  1.5                   2",
        "local     none      smol              -             -           -                     -",
    ]


def test_json_has_null_for_unknown_prices(tmp_path: Path) -> None:
    data = orjson.loads(format_json(listing(tmp_path, "2026-06-01")))

    assert (data["at"], data["as_of"]) == ("2026-06-01", "2026-03-01")
    assert data["prices"][0]["price"] == {
        "from": "2026-06-01", "input": "0.1", "output": "0.5",
        "tiers": [{"above": 1000, "input": "0.2"}]
    }  # fmt: skip
    assert data["prices"][2] == {
        "upstream": "local", "provider": "none", "model": "smol", "by": None, "price": None
    }  # fmt: skip
