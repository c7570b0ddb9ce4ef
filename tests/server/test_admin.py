"""The admin listener: metrics, liveness and readiness, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import ClientSession

from proxy.server.admin import AdminAccess
from proxy.settings import Address, BadSetting, from_environment
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each


async def test_metrics_count_calls_and_hide_secrets(proxy: Proxy) -> None:
    await proxy.complete()
    await proxy.sink.wait()

    async with proxy.client.get(f"{proxy.admin}/metrics") as response:
        text = await response.text()

    assert response.headers["content-type"].startswith("text/plain")
    assert 'headrace_requests_total{deployment="support-chat"' in text
    assert 'token_type="output"' in text
    assert KEY not in text
    assert "sk-upstream-secret" not in text


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/healthz", 200, ""),
        ("GET", "/readyz", 200, ""),
        ("GET", "/v1/models", 404, ""),
        ("GET", "/nothing", 404, "Unknown path"),
        ("POST", "/metrics", 405, ""),
        ("GET", "/candidate", 404, "No candidate policy is loaded"),
        (
            "PUT",
            "/loglevel?level=info&seconds=abc",
            400,
            "seconds must be greater than 0 and at most 86400\n",
        ),
    ],
)
async def test_path_has_its_status(
    method: str, path: str, status: int, words: str, proxy: Proxy
) -> None:
    async with proxy.client.request(method, f"{proxy.admin}{path}") as response:
        assert response.status == status
        assert words in await response.text()


async def test_log_level_changes_for_a_while(proxy: Proxy) -> None:
    place = f"{proxy.admin}/loglevel"
    async with proxy.client.put(f"{place}?level=debug&seconds=60") as response:
        assert await response.json() == {"level": "debug", "seconds_left": 60}
    async with proxy.client.get(place) as response:
        assert (await response.json())["level"] == "debug"
    async with proxy.client.put(f"{place}?level=loud") as response:
        assert response.status == 400
        assert "level must be one of debug" in await response.text()
    async with proxy.client.put(f"{place}?level=info&seconds=soon") as response:
        assert response.status == 400


async def test_shared_id_is_explained_per_key(proxy: Proxy) -> None:
    for key, model in ((KEY, "support-chat"), ("hr-search-key", "search-answers")):
        headers = {"authorization": f"Bearer {key}", "x-request-id": "mine"}
        await proxy.complete(headers, model=model)
    await proxy.sink.wait(2)

    results = {}
    for owner in ("", "?key=support-widget", "?key=search-box", "?key=nobody"):
        async with proxy.client.get(f"{proxy.admin}/explain/mine{owner}") as response:
            results[owner] = response.status, await response.text()

    assert results[""] == (
        300,
        "Several keys used this request id. Add ?key=NAME, one of: search-box, support-widget.\n",
    )
    assert results["?key=nobody"][0] == 404
    assert "support-chat" in results["?key=support-widget"][1]
    assert "support-chat" not in results["?key=search-box"][1]
    assert "search-answers" in results["?key=search-box"][1]


TOKEN = "t" * 16
FOLDER = Address("127.0.0.1", 0)


@for_each(
    ("host", "known_value"),
    [
        ("localhost:8081", True),
        ("127.0.0.1:8081", True),
        ("[::1]:8081", True),
        ("[::1]", True),
        ("10.0.0.7", True),
        ("headrace:8081", True),
        ("Headrace.", True),
        ("", True),
        ("evil.example:8081", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("8081", False),
    ],
)
def test_only_hosts_of_this_server_are_accepted(host: str, *, known_value: bool) -> None:
    access = AdminAccess(hosts=("headrace",))

    assert (access.find_refusal("GET", "/metrics", {"Host": host}) is None) == known_value


@for_each(
    ("method", "headers", "may"),
    [
        ("GET", {}, True),
        ("GET", {"Sec-Fetch-Site": "none"}, True),
        ("GET", {"Sec-Fetch-Site": "same-origin"}, True),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, False),
        ("GET", {"Origin": "https://evil.example"}, False),
        ("PUT", {}, True),
        ("PUT", {"Sec-Fetch-Site": "none"}, False),
        ("PUT", {"Sec-Fetch-Site": "same-origin"}, False),
        ("PUT", {"Origin": "null"}, False),
    ],
)
async def test_requests_of_web_pages_are_refused(
    method: str, headers: dict[str, str], *, may: bool, proxy: Proxy
) -> None:
    path = "/loglevel?level=debug&seconds=1"
    async with (
        ClientSession() as client,
        client.request(method, proxy.admin + path, headers=headers) as response,
    ):
        assert response.status == (200 if may else 403)


async def test_token_protects_all_but_probes(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    right, wrong = f"Bearer {TOKEN}", f"Bearer {TOKEN}x"
    async with running_proxy(
        tmp_path / "p", policies_for(upstream.url), admin_token=TOKEN
    ) as proxy:
        for path, text, status in (
            ("/metrics", right, 200),
            ("/metrics", wrong, 401),
            ("/metrics", TOKEN, 401),
            ("/explain/x", "", 401),
            ("/healthz", "", 200),
            ("/readyz", "", 200),
        ):
            headers = {"Authorization": text} if text else {}
            async with proxy.client.get(proxy.admin + path, headers=headers) as response:
                assert response.status == status, path


@for_each("host", ["0.0.0.0", "::", "10.0.0.7", "headrace"])  # noqa: S104
def test_reachable_admin_address_requires_a_token(host: str) -> None:
    address = Address(host, 8081)
    fields = {"HEADRACE_ADMIN_TOKEN": TOKEN, "HEADRACE_ADMIN_HOSTS": "headrace, Other"}

    with pytest.raises(BadSetting, match="HEADRACE_ADMIN_TOKEN"):
        from_environment(Path("p"), FOLDER, address, {})
    with pytest.raises(BadSetting, match="16 characters"):
        from_environment(Path("p"), FOLDER, address, {"HEADRACE_ADMIN_TOKEN": "short"})
    assert from_environment(Path("p"), FOLDER, address, fields).admin_hosts == ("headrace", "other")
