"""The admin port: who may ask it, by which name, and that no page in a browser may."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from proxy.edge.access import Access
from proxy.settings import Address, BadSetting, from_environment
from tests.conftest import Proxy, running_proxy, world
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each

TOKEN = "t" * 16
HERE = Address("127.0.0.1", 0)


@for_each(
    ("host", "known"),
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
def test_only_names_that_lead_nowhere_else_are_known(host: str, *, known: bool) -> None:
    access = Access(hosts=("headrace",))

    assert (access.refuses("GET", "/metrics", {"Host": host}) is None) == known


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
async def test_no_page_reads_or_changes_anything(
    method: str, headers: dict[str, str], *, may: bool, proxy: Proxy
) -> None:
    path = "/loglevel?level=debug&seconds=1"
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, proxy.admin + path, headers=headers) as response,
    ):
        assert response.status == (200 if may else 403)


async def test_a_token_opens_all_but_what_probes_ask(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    right, wrong = f"Bearer {TOKEN}", f"Bearer {TOKEN}x"
    async with (
        running_proxy(tmp_path / "p", world(upstream.url), admin_token=TOKEN) as proxy,
        aiohttp.ClientSession() as client,
    ):
        for path, said, status in (
            ("/metrics", right, 200),
            ("/metrics", wrong, 401),
            ("/metrics", TOKEN, 401),
            ("/explain/x", "", 401),
            ("/healthz", "", 200),
            ("/readyz", "", 200),
        ):
            headers = {"Authorization": said} if said else {}
            async with client.get(proxy.admin + path, headers=headers) as response:
                assert response.status == status, path


@for_each("host", ["0.0.0.0", "::", "10.0.0.7", "headrace"])  # noqa: S104
def test_where_others_reach_it_there_is_a_token_or_no_start(host: str) -> None:
    at = Address(host, 8081)
    said = {"HEADRACE_ADMIN_TOKEN": TOKEN, "HEADRACE_ADMIN_HOSTS": "headrace, Other"}

    with pytest.raises(BadSetting, match="HEADRACE_ADMIN_TOKEN"):
        from_environment(Path("p"), HERE, at, {})
    with pytest.raises(BadSetting, match="16 characters"):
        from_environment(Path("p"), HERE, at, {"HEADRACE_ADMIN_TOKEN": "short"})
    assert from_environment(Path("p"), HERE, at, said).admin_hosts == ("headrace", "other")
