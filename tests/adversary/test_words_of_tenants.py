"""Two tenants with a limit in common: what one of them says uses up nothing of the other's."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from proxy.types import Json
from proxy.types.limit import Claim, Limit
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


async def statuses(folder: Path, said: str, *asked: tuple[str, Json, Json]) -> list[int]:
    """Return the status of each call: of a key, with its own headers and more of a body."""
    found = []
    async with running_proxy(folder, said) as proxy, aiohttp.ClientSession(proxy.url) as web:
        for key, headers, body in asked:
            deployment = {ONE: "mine", OTHER: "theirs"}[key]
            told = {"authorization": f"Bearer {key}", "x-headrace-deployment": deployment}
            said_ = {"model": deployment, "prompt": "Hi", **body}
            async with web.post("/v1/completions", json=said_, headers=told | headers) as got:
                found.append(got.status)
    return found


USER: Json = {"user": "anna"}
FEATURE: Json = {"x-headrace-tags": "feature=box"}


@pytest.mark.parametrize(
    ("limit", "headers", "body"),
    [
        ({"per": "user"}, {}, USER),
        ({"per": ["model", "user"]}, {}, {**USER, "model": "same"}),
        ({"per": "tag.feature"}, FEATURE, {}),
        ({"per": ["user", "tag.feature"]}, FEATURE, USER),
    ],
    ids=["user", "model and user", "tag", "user and tag"],
)
async def test_what_a_client_says_counts_within_its_key(
    limit: Json, headers: Json, body: Json, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    said = policies(upstream.url, limit)
    mine, theirs = (ONE, headers, body), (OTHER, headers, body)

    assert await statuses(tmp_path, said, mine, mine, theirs, theirs) == [200, 429, 200, 429]


@pytest.mark.parametrize(
    ("per", "headers", "body"), [("user", {}, USER), ("tag.feature", FEATURE, {})]
)
async def test_a_limit_across_keys_is_shared_by_all_who_say_the_same(
    per: str, headers: Json, body: Json, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    said = policies(upstream.url, {"per": per, "across": "keys"})
    mine, theirs = (ONE, headers, body), (OTHER, headers, body)

    assert await statuses(tmp_path, said, mine, theirs) == [200, 429]


async def test_a_made_up_name_of_a_model_counts_as_the_model_that_is_asked(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    said = policies(upstream.url, {"per": "model"})
    names = ("large", "up/small", "mine", "anything")
    asked: list[tuple[str, Json, Json]] = [(ONE, {}, {"model": name}) for name in names]

    found = await statuses(tmp_path, said, *asked, (OTHER, {}, {"model": "large"}))

    assert found == [200, 429, 429, 429, 200]


def test_who_makes_up_many_names_loses_its_own_counters_first() -> None:
    store = replace(Clock().memory(), most=100)
    calls, users = Limit("calls", "requests", 1, 86_400), Limit("users", "requests", 1, 86_400)
    victims = (Claim(calls, "key:victim", 1), Claim(users, "key:victim|user:anna", 1))

    def admitted(name: str, *asked: Claim) -> bool:
        found = store.admit_now(name, asked).admitted
        store.settle_now(name, [1] * len(asked))
        return found

    assert admitted("first", *victims)
    for number in range(1000):
        assert admitted(f"flood {number}", Claim(users, f"key:flood|user:{number}", 1))

    assert store.evicted > 0
    assert not any(admitted(f"again {claim.scope}", claim) for claim in victims)
