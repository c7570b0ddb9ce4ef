"""Limits as people write them, and which of them count for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.policy.store import read_folder
from proxy.types import ScopedLimit
from proxy.types.limit import LEASE_S, RENEW_S
from proxy.types.windows import Calendar
from tests.for_each import for_each

POLICIES = """\
upstreams:
  up: {dialect: openai, base_url: 'https://api.example.test', timeouts: {total: TOTAL}}
tags: {team: [support]}
policies:
  house: {limits: [{name: house, requests: 600 per minute, per: key, burst: 10}]}
  public:
    extends: house
    limits: [{name: public, tokens: 200k per 10 minutes, per: [tag.team, user]}]
keys: {widget: {sha256: AAAA, deployments: [chat]}}
deployments:
  chat:
    targets: [{upstream: up, model: m}]
    policy: public
    limits:
      - name: month
        usd: 500 per month
        unpriced: allow
        zone: Europe/Berlin
        warn_at: 80%
        mode: shadow
      - {name: at-once, concurrency: 20, on_store_error: closed}
""".replace("AAAA", "0" * 64)


def bounds(folder: Path, total: str = "10m") -> dict[str, ScopedLimit]:
    (folder / "p.yaml").write_text(POLICIES.replace("TOTAL", total))
    snapshot = read_folder(folder, None).deployments["chat"].limits
    return {bound.limit.name: bound for bound in snapshot}


def test_a_deployment_has_its_own_limits_and_those_of_its_policies(tmp_path: Path) -> None:
    assert list(bounds(tmp_path)) == ["month", "at-once", "public", "house"]


def test_a_limit_is_read_as_it_is_said(tmp_path: Path) -> None:
    result = bounds(tmp_path)
    house, public, month = (result[name].limit for name in ("house", "public", "month"))

    assert (house.kind.name, house.amount, house.window, house.burst) == ("requests", 600, 60, 10)
    assert (public.kind.name, public.amount, public.window) == ("tokens", 200_000, 600)
    assert (month.kind.name, month.amount, month.window) == (
        "usd",
        500 * 10**9,
        Calendar("month", "Europe/Berlin"),
    )
    assert (month.warn_at, month.shadow, result["at-once"].limit.on_store_error) == (
        0.8,
        True,
        "closed",
    )
    assert (result["house"].per, result["public"].per) == (("key",), ("key", "tag.team", "user"))


@for_each(
    ("written", "per"),
    [
        ("per: [user, key]", ("key", "user")),
        ("per: [tag.team, key, user]", ("key", "tag.team", "user")),
        ("per: [deployment, user]", ("key", "deployment", "user")),
        ("per: [user, deployment], across: keys", ("user", "deployment")),
        ("per: [tag.team, key]", ("key", "tag.team")),
        ("per: [tag.team, deployment]", ("tag.team", "deployment")),
    ],
)
def test_key_comes_first_in_counter(written: str, per: tuple[str, ...], tmp_path: Path) -> None:
    text = POLICIES.replace("per: [tag.team, user]", written).replace("TOTAL", "10m")
    (tmp_path / "p.yaml").write_text(text)
    snapshot = read_folder(tmp_path, None).deployments["chat"].limits

    assert next(bound.per for bound in snapshot if bound.limit.name == "public") == per


@pytest.mark.parametrize("total", ["10m", "1h"])
def test_lease_is_short_for_any_timeout(total: str, tmp_path: Path) -> None:
    lease = bounds(tmp_path, total)["at-once"].limit.lease_s

    assert lease == LEASE_S < 60
    assert lease > 2 * RENEW_S
