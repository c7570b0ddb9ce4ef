"""What clients say of the cache, and what becomes of words that make no sense."""

from __future__ import annotations

import pytest

from proxy.cache.cache_control import DEFAULT, CacheControl, read_cache_control
from proxy.errors import BadRequest
from tests.cache.world import Cached
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each
from tests.test_pipeline import ROUTES, good


@for_each(
    ("headers", "control"),
    [
        ({}, DEFAULT),
        ({"cache-control": "no-cache"}, CacheControl(no_cache=True)),
        ({"cache-control": "No-Store"}, CacheControl(keep=False)),
        ({"cache-control": "no-store, no-cache"}, CacheControl(no_cache=True, keep=False)),
        ({"cache-control": "max-age=60"}, CacheControl(max_age=60)),
        ({"cache-control": 'max-age = "5", max-age=60'}, CacheControl(max_age=5)),
        ({"cache-control": "max-age=99999999999999999999"}, CacheControl(max_age=10**9)),
        ({"cache-control": "max-age=soon, only-if-cached, ="}, DEFAULT),
        ({"cache-control": "max-age=-1, max-age=²"}, DEFAULT),
        ({"x-portkey-cache-force-refresh": "true"}, CacheControl(no_cache=True)),
        ({"x-portkey-cache-force-refresh": "false"}, DEFAULT),
        ({"cf-aig-skip-cache": "true"}, CacheControl(no_cache=True, keep=False)),
        ({"cf-aig-skip-cache": "false"}, DEFAULT),
        ({"helicone-cache-enabled": "false"}, CacheControl(no_cache=True, keep=False)),
        ({"helicone-cache-enabled": "true"}, DEFAULT),
        ({"helicone-cache-enabled": ""}, DEFAULT),
        ({"x-portkey-cache-namespace": " trial "}, CacheControl(namespace="trial")),
    ],
)
def test_reads_cache_headers(headers: dict[str, str], control: CacheControl) -> None:
    assert read_cache_control(headers) == control


def test_invalid_refresh_flag_is_rejected() -> None:
    with pytest.raises(BadRequest, match="force-refresh: must be true or false"):
        read_cache_control({"x-portkey-cache-force-refresh": "perhaps"})


OPENAI = [route for name, route in ROUTES.items() if name.startswith("openai")]
NAMES = [name for name in ROUTES if "azure" not in name]  # whose credential is nobody else's


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", NAMES)
async def test_portkey_headers_are_read_on_openai_paths(
    name: str, streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    streamed = streamed and route.streams
    upstream.answer_with(good(route, streamed=streamed))
    ours, theirs, statuses = [], [], []
    control: tuple[dict[str, str], ...] = (
        {},
        {"x-portkey-cache-namespace": "apart"},
        {"x-portkey-cache-force-refresh": "true"},
    )
    for wish in control:
        headers = {**route.credential, **wish}
        body = route.body(streamed=streamed)
        async with cached.client.post(route.path, headers=headers, json=body) as response:
            await response.read()
        statuses.append(response.status)
        ours.append(response.headers["x-headrace-cache"])
        theirs.append(response.headers.get("x-portkey-cache-status"))

    portkey = any(name.startswith("x-portkey") for name in route.credential)
    assert (statuses, ours) == ([200] * 3, ["miss", "miss", "refresh"])
    if route in OPENAI:  # a header of Portkey makes a call there one of Portkey's
        assert theirs == [None, "MISS", "REFRESH"]
    else:
        assert theirs == (["MISS", "MISS", "REFRESH"] if portkey else [None] * 3)
