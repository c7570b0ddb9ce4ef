"""The simulated upstream: it answers every route, and says that no model runs."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from proxy.demo.simulated import TEXT, running_simulation
from proxy.settings import Address
from tests.conftest import running_proxy, world
from tests.test_pipeline import ROUTES, texts


async def test_every_route_is_answered(tmp_path: Path) -> None:
    assert "simulated" in TEXT
    calls = 0
    async with (
        running_simulation(Address("127.0.0.1", 0)) as at,
        running_proxy(tmp_path / "p", world(f"http://{at}")) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        for name, route in ROUTES.items():
            for streamed in (False, True) if route.streams else (False,):
                body = route.body(streamed=streamed, model="gpt-4o-mini")
                async with client.post(route.path, headers=route.credential, json=body) as response:
                    raw = await response.read()
                calls += 1
                record = (await proxy.sink.wait(calls))[-1]
                assert texts(route, raw, streamed=streamed).strip() == TEXT, (name, streamed, raw)
                assert record.billing.source == "provider", (name, streamed)
