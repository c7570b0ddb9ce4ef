"""Keys and claims as the script reads them."""

from __future__ import annotations

import json
from dataclasses import replace

from proxy.limits.stores import wire
from proxy.limits.stores.wire import Wire
from tests.for_each import for_each
from tests.limits.world import MONTH, PLACES, REQUESTS, Clock, claims


@for_each("scope", ["key:support-widget", "", "user:}", "user:{x}", "user:{}"])
def test_all_keys_have_one_hash_tag(scope: str) -> None:
    asked = claims((REQUESTS, 1), (PLACES, 1), scope=scope)

    keys = Wire(Clock().seconds).keys("call-1", asked)

    assert len(set(keys)) == 3
    assert {key[key.index("{") + 1 : key.index("}")] for key in keys} == {"limits"}


def test_claims_are_numbers_alone() -> None:
    told = Wire(Clock().seconds).claims(claims((REQUESTS, 2), (PLACES, 1)))

    assert json.loads(told) == [[2, 0, 1, 100, 0, 600, 1], [1, 0, 3, 100, 0, 30_000]]
    assert json.loads(wire.settle(told, [1, 1]))[3] == [1, 1]


def test_the_windows_of_a_budget_are_told_anew_when_one_ends() -> None:
    clock = Clock()
    told = Wire(clock.seconds)
    before = json.loads(told.claims(claims((MONTH, 1))))[0][5:]
    clock.ms = before[2]

    after = json.loads(told.claims(claims((MONTH, 1))))[0][5:]

    assert after[:3] == before[1:]


def test_a_limit_that_the_policy_changed_is_told_as_it_is_now() -> None:
    told = Wire(Clock().seconds)
    told.claims(claims((PLACES, 1)))

    assert json.loads(told.claims(claims((replace(PLACES, amount=7), 1))))[0][3] == 7
