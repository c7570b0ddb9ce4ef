"""A running shop, and pages of a real Chromium that may only talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.conftest import Proxy
from tests.console.shop import running_shop
from tests.doubles import ScriptedUpstream
from tests.servers import program

expect.set_options(timeout=20_000)  # a busy machine may take as long


@pytest.fixture
async def shop(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_shop(tmp_path / "policies", upstream) as proxy:
        yield proxy


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    chromium = program("chromium")
    async with async_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]  # for containers
        browser = await playwright.chromium.launch(executable_path=chromium, args=options)
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page that fails the test for an error on it, and for a request to another machine."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.extend(_foreign(request.url)))
    yield page
    await context.close()
    assert not problems


def _foreign(url: str) -> list[str]:
    is_local = url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:"))
    return [] if is_local else [f"request to {url}"]
