"""Two tenants with a limit in common: what one of them says uses up nothing of the other's."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.limits.kinds import KINDS
from proxy.types import Json
from proxy.types.limit import Claim, Limit
from proxy.types.windows import Calendar
from tests.conftest import running_proxy
from tests.doubles import ScriptedUpstream
from tests.limits.world import Clock

ONE, OTHER = "hr-one-key", "hr-other-key"


def policies(upstream: str, limit: Json) -> str:
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in (ONE, OTHER)}
    limit = {"name": "few", "requests": "1 per day", **limit}
    return json.dumps(
        {
            "upstreams": {"up": {"dialect": "openai", "base_url": f"{upstream}/v1"}},
            "tags": {"feature": {"pattern": "[a-z]+", "caller": True}},
            "policies": {"default": {"limits": [limit]}},
            "keys": {
                "one": {"sha256": digests[ONE], "deployments": ["mine"]},
                "other": {"sha256": digests[OTHER], "deployments": ["theirs"]},
            },
            "deployments": {
                "mine": {"targets": [{"upstream": "up", "model": "small"}]},
                "theirs": {"targets": [{"upstream": "up", "model": "large"}]},
            },
        }
    )


async def statuses(folder: Path, text: str, *requests: tuple[str, Json, Json]) -> list[int]:
    """Return the status of each call: of a key, with its own headers and more of a body."""
    matches = []
    async with running_proxy(folder, text) as proxy:
        for key, headers, body in requests:
            deployment = {ONE: "mine", OTHER: "theirs"}[key]
            event = {"authorization": f"Bearer {key}", "x-headrace-deployment": deployment}
            said_ = {"model": deployment, "prompt": "Hi", **body}
            async with proxy.client.post(
                "/v1/completions", json=said_, headers=event | headers
            ) as response:
                matches.append(response.status)
    return matches


USER: Json = {"user": "anna"}
FEATURE: Json = {"x-headrace-tags": "feature=box"}


@pytest.mark.parametrize(
    ("limit", "headers", "body", "expected"),
    [
        ({"per": "user"}, {}, USER, [200, 429, 200, 429]),
        ({"per": ["model", "user"]}, {}, {**USER, "model": "same"}, [200, 429, 200, 429]),
        ({"per": "tag.feature"}, FEATURE, {}, [200, 429, 200, 429]),
        ({"per": ["user", "tag.feature"]}, FEATURE, USER, [200, 429, 200, 429]),
        ({"per": "user", "across": "keys"}, {}, USER, [200, 429, 429, 429]),
        ({"per": "tag.feature", "across": "keys"}, FEATURE, {}, [200, 429, 429, 429]),
    ],
    ids=str,
)
async def test_client_values_count_within_a_key_or_across_keys(
    limit: Json,
    headers: Json,
    body: Json,
    expected: list[int],
    upstream: ScriptedUpstream,
    tmp_path: Path,
) -> None:
    text = policies(upstream.url, limit)
    mine, theirs = (ONE, headers, body), (OTHER, headers, body)

    assert await statuses(tmp_path, text, mine, mine, theirs, theirs) == expected


async def test_counts_asked_model_not_alias(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    text = policies(upstream.url, {"per": "model"})
    names = ("large", "up/small", "mine", "anything")
    requests: list[tuple[str, Json, Json]] = [(ONE, {}, {"model": name}) for name in names]

    matches = await statuses(tmp_path, text, *requests, (OTHER, {}, {"model": "large"}))

    assert matches == [200, 429, 429, 429, 200]


def test_who_makes_up_many_names_loses_its_own_counters_first() -> None:
    store = replace(Clock().memory(), max_counters=100)
    calls = Limit("calls", KINDS["requests"], 1, 86_400)
    users = Limit("users", KINDS["requests"], 1, 86_400)
    victims = (Claim(calls, "key:victim", 1), Claim(users, "key:victim|user:anna", 1))

    def admitted(name: str, *claims: Claim) -> bool:
        is_found = store.admit_sync(name, claims).admitted
        store.settle_sync(name, [1] * len(claims))
        return is_found

    assert admitted("first", *victims)
    for number in range(1000):
        assert admitted(f"flood {number}", Claim(users, f"key:flood|user:{number}", 1))

    assert store.evicted > 0
    assert not any(admitted(f"again {claim.scope}", claim) for claim in victims)


@pytest.mark.parametrize("flood", ["rates", "budgets", "both"])
def test_who_makes_up_many_names_takes_no_counter_of_others(flood: str) -> None:
    store = replace(Clock().memory(), max_counters=1000)
    calls = Limit("calls", KINDS["requests"], 10, 86_400)
    house = Limit("house", KINDS["usd"], 100, Calendar("month"))
    rate = Limit("user-calls", KINDS["requests"], 10, 86_400)
    budget = Limit("user-money", KINDS["usd"], 100, Calendar("month"))
    honest = [Claim(calls, f"key:honest-{n}", 10) for n in range(50)]
    honest += [Claim(budget, f"key:victim|user:{n}", 100) for n in range(20)]
    honest += [Claim(rate, f"key:victim|user:{n}", 10) for n in range(20)]
    honest += [Claim(house, f"tag.team:{n}", 100) for n in range(20)]
    kinds = {"rates": [rate], "budgets": [budget], "both": [rate, budget]}[flood]
    for number, claim in enumerate(honest):
        store.admit_sync(f"honest-{number}", [claim])
        store.settle_sync(f"honest-{number}", [claim.amount])

    for number in range(3000):
        made_up = [Claim(limit, f"key:flood|user:{number}", 1) for limit in kinds]
        store.admit_sync(f"flood-{number}", made_up)
        store.settle_sync(f"flood-{number}", [1] * len(made_up))

    assert store.evicted > 1000
    states = store.check([replace(claim, amount=0) for claim in honest]).standings
    assert [standing.used for standing in states] == [claim.amount for claim in honest]


def test_of_one_key_rates_go_before_budgets() -> None:
    store = replace(Clock().memory(), max_counters=100)
    rate = Limit("calls", KINDS["requests"], 10, 86_400)
    budget = Limit("money", KINDS["usd"], 100, Calendar("month"))
    for number in range(50):
        store.admit_sync(f"paid-{number}", [Claim(budget, f"key:one|user:{number}", 5)])
        store.settle_sync(f"paid-{number}", [5])
    for number in range(1000):
        store.admit_sync(f"call-{number}", [Claim(rate, f"key:one|user:{number}", 9)])
        store.settle_sync(f"call-{number}", [9])

    claims = [Claim(budget, f"key:one|user:{number}", 0) for number in range(50)]
    assert [standing.used for standing in store.check(claims).standings] == [5] * 50
