"""Which failure a client is told when all targets fail: one table for all ways to ask them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest

from proxy.errors import (
    BadField,
    CircuitOpen,
    ProxyError,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamForbids,
    UpstreamInvalid,
    UpstreamRefused,
    UpstreamRejectedKey,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.upstream.failures import most_useful
from tests.doubles import Script, ScriptedUpstream, answer
from tests.for_each import for_each
from tests.upstream.test_retries import ask, models, under

REFUSED = UpstreamRefused("Too long.", upstream_status=400)
DENIED = UpstreamDenied("No.", upstream_status=446)
DOWN = UpstreamUnavailable("Away.")
SLOW = UpstreamTimeout("total")
BROKEN = UpstreamInvalid("Not JSON.")
KEY = UpstreamRejectedKey("No key.", upstream_status=401)
FORBIDDEN = UpstreamForbids("Not this.", upstream_status=403)
OPEN, BUSY = CircuitOpen(9.0), UpstreamBusy(1.0)
FIELD = BadField("tools", "cannot be served")


@for_each(
    ("failures", "told"),
    [
        ([DOWN], DOWN),
        ([DOWN, REFUSED], REFUSED),
        ([OPEN, DENIED], DENIED),
        ([FIELD, REFUSED], REFUSED),
        ([DOWN, SLOW], SLOW),
        ([SLOW, DOWN, BROKEN], BROKEN),
        ([DOWN, OPEN], DOWN),
        ([DOWN, KEY], DOWN),
        ([FORBIDDEN, SLOW, KEY], SLOW),
        ([OPEN, BUSY], BUSY),
        ([BUSY, OPEN, KEY], BUSY),
        ([OPEN, FIELD], OPEN),
        ([DOWN, FIELD], DOWN),
        ([FIELD, DOWN], DOWN),
        ([KEY, FORBIDDEN], FORBIDDEN),
        ([FIELD, KEY], KEY),
        ([KEY, FIELD], KEY),
        ([FIELD], FIELD),
    ],
    ids=lambda each: ", ".join(e.code for e in each) if isinstance(each, list) else each.code,
)
def test_the_failure_that_helps_a_client_most_is_told(
    failures: Sequence[ProxyError], told: ProxyError
) -> None:
    assert most_useful(failures) is told


def test_to_choose_part_by_part_is_to_choose_at_once() -> None:
    for failures in permutations([REFUSED, DOWN, SLOW, KEY, OPEN, BUSY, FIELD], 3):
        one, *others = failures
        assert most_useful([one, most_useful(others)]) is most_useful(failures)


SCRIPTS: dict[str, Script] = {
    "refused": answer({"error": {"message": "Too long.", "code": "context_length_exceeded"}}, 400),
    "limited": answer({}, 429, "retry-after: 7"),
    "away": answer({}, 503),
    "broken": answer({}, 500),
    "key": answer({}, 401),
}
TOLD = [
    ("away", "refused", (400, "context_length_exceeded")),
    ("limited", "away", (503, "upstream_unavailable")),
    ("away", "limited", (429, "upstream_unavailable")),
    ("limited", "key", (429, "upstream_unavailable")),
    ("key", "broken", (502, "upstream_unavailable")),
]


@pytest.mark.parametrize(
    "said", ["description: plain", "hedge: {after: 1ms}", "hedge: {after: 5s}"]
)
@pytest.mark.parametrize(("first", "second", "told"), TOLD)
async def test_targets_in_turn_and_at_once_are_told_of_alike(
    first: str, second: str, told: tuple[int, str], said: str, tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:  # fmt: skip
    upstream.by_model = {"primary": SCRIPTS[first], "spare": SCRIPTS[second]}
    async with under(tmp_path, upstream, said) as (_, client):
        status, _, error = await ask(client)

    assert (status, error["error"]["code"]) == told
    assert sorted(models(upstream)) == ["primary", "spare"]


@pytest.mark.parametrize(("first", "second", "told"), TOLD)
async def test_a_list_of_models_that_all_fail_is_told_of_alike(
    first: str, second: str, told: tuple[int, str], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.by_model = {"first": SCRIPTS[first], "second": SCRIPTS[second]}
    async with under(tmp_path, upstream, "description: plain") as (proxy, client):
        body = {"model": ["first", "second"], "prompt": "Hi"}
        headers = {"authorization": f"Bearer {proxy.key}"}
        async with client.post("/v1/completion", json=body, headers=headers) as response:
            status, error = response.status, await response.json()

    assert (status, error["error"]["code"]) == told
