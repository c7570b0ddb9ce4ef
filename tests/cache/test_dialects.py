"""What clients of each dialect may say of the cache, and read of it."""

from __future__ import annotations

import pytest

from tests.cache.world import Cached
from tests.doubles import ScriptedUpstream
from tests.test_pipeline import ROUTES, good

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
