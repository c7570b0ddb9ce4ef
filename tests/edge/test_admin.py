"""The admin listener: metrics, liveness and readiness, and nothing else."""

from __future__ import annotations

import aiohttp
import pytest

from tests.conftest import KEY, Proxy
from tests.test_pipeline import BEARER, ROUTES


async def test_metrics_hold_what_happened_and_no_secret(
    proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    route = ROUTES["openai"]
    async with client.post(route.path, headers=BEARER, json=route.body(streamed=False)):
        pass
    await proxy.sink.wait()

    async with client.get(f"{proxy.admin}/metrics") as response:
        said = await response.text()

    assert response.headers["content-type"].startswith("text/plain")
    assert 'headrace_requests_total{deployment="support-chat"' in said
    assert 'token_type="output"' in said
    assert KEY not in said
    assert "sk-upstream-secret" not in said


@pytest.mark.parametrize(
    ("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/v1/models", 404), ("/", 404)]
)
async def test_there_is_nothing_but_health_and_metrics(
    path: str, status: int, proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{proxy.admin}{path}") as response:
        assert response.status == status


async def test_it_cannot_be_written_to(proxy: Proxy, client: aiohttp.ClientSession) -> None:
    async with client.post(f"{proxy.admin}/metrics") as response:
        assert response.status == 405


async def test_the_level_of_the_log_is_changed_for_a_while(
    proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    at = f"{proxy.admin}/loglevel"
    async with client.put(f"{at}?level=debug&seconds=60") as response:
        assert await response.json() == {"level": "debug", "seconds_left": 60}
    async with client.get(at) as response:
        assert (await response.json())["level"] == "debug"
    async with client.put(f"{at}?level=loud") as response:
        assert response.status == 400
        assert "level must be one of debug" in await response.text()
    async with client.put(f"{at}?level=info&seconds=soon") as response:
        assert response.status == 400


async def test_what_is_no_number_of_seconds_is_told_in_our_words(
    proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    async with client.put(f"{proxy.admin}/loglevel?level=info&seconds=abc") as response:
        assert response.status == 400
        assert await response.text() == "seconds must be greater than 0 and at most 86400\n"


async def test_without_a_candidate_it_is_said_that_none_is_served(
    proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    async with client.get(f"{proxy.admin}/candidate") as response:
        assert response.status == 404
        assert "No candidate policy is loaded" in await response.text()


async def test_an_id_that_two_keys_have_used_is_explained_for_each(
    proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    for key, model in ((KEY, "support-chat"), ("hr-search-key", "search-answers")):
        headers = {"authorization": f"Bearer {key}", "x-request-id": "mine"}
        body = {"model": model, "prompt": "Hi"}
        async with client.post("/v1/completions", headers=headers, json=body) as response:
            await response.read()
    await proxy.sink.wait(2)

    found = {}
    for whose in ("", "?key=support-widget", "?key=search-box", "?key=nobody"):
        async with client.get(f"{proxy.admin}/explain/mine{whose}") as response:
            found[whose] = response.status, await response.text()

    assert found[""] == (
        300,
        "Several keys used this request id. Add ?key=NAME, one of: search-box, support-widget.\n",
    )
    assert found["?key=nobody"][0] == 404
    assert "support-chat" in found["?key=support-widget"][1]
    assert "support-chat" not in found["?key=search-box"][1]
    assert "search-answers" in found["?key=search-box"][1]
