"""The first minute: the demo with its real model, the printed address, and the curl of the page."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.demo.test_init import FREE, TOP, Demo, policies_with
from tests.servers import free_port, program

pytestmark = [pytest.mark.model, pytest.mark.process]


async def test_curl_of_the_empty_page_appears_as_a_call(page: Page, tmp_path: Path) -> None:
    program("curl")
    policies = policies_with(tmp_path, free_port())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "demo", "--policies", str(policies)),
        *("--listen", FREE, "--admin-listen", FREE),
        stdout=PIPE,
        stderr=STDOUT,
        cwd=TOP,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    demo = Demo(process)
    try:
        async with asyncio.timeout(90):
            await demo.wait_for("/metrics")
            [console] = re.findall(r"console and metrics: (http://[0-9.:]+)\)", demo.printed)
            await page.goto(console)
            key, curl = page.locator("pre").nth(0), page.locator("pre").nth(1)
            await expect(curl).to_contain_text("support-chat")
            await expect(curl).not_to_contain_text("127.0.0.1:0/")
            command = f"{await key.inner_text()}\n{await curl.inner_text()}"
            shell = await asyncio.create_subprocess_exec("sh", "-c", command, stdout=DEVNULL)
            assert await shell.wait() == 0
            await page.get_by_role("link", name="Calls", exact=True).first.click()
            row = page.locator("tbody tr")
            await expect(row).to_have_count(1)
            await expect(row).to_contain_text("success")
            await row.locator("a.row").click()
            details = page.get_by_role("region", name="Details of the call")
            await expect(details).to_contain_text("route to local/smol")
            assert await demo.stop() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
