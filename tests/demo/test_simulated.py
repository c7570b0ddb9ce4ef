"""The upstream for platforms without the model: it answers, and says that it is none."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from proxy.demo.simulated import TEXT, running_simulation
from proxy.settings import Address
from tests.conftest import running_proxy, world
from tests.test_pipeline import ROUTES, texts


@pytest.mark.parametrize("name", ["openai", "openai-chat"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_it_says_that_no_model_runs(name: str, streamed: bool, tmp_path: Path) -> None:
    route = ROUTES[name]
    async with (
        running_simulation(Address("127.0.0.1", 0)) as at,
        running_proxy(tmp_path / "p", world(f"http://{at}")) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
        client.post(
            route.path, headers=route.credential, json=route.body(streamed=streamed)
        ) as response,
    ):
        raw = await response.read()

    assert "simulated" in TEXT
    assert texts(route, raw, streamed=streamed).strip() == TEXT
    [record] = await proxy.sink.wait()
    assert record.billing.source == "provider"
