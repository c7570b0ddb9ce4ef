"""Runs the drivers in the environment of the real SDKs."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy

TOP = Path(__file__).parents[2]
PYTHON = TOP / ".venv-sdks" / "bin" / "python"
DRIVERS = Path(__file__).with_name("drivers.py")

Drive = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture
def drive(proxy: Proxy) -> Drive:
    """Give what drives an SDK through steps and returns what it gave for each."""
    if not PYTHON.exists():
        assert not os.environ.get("CI"), "the SDKs are not installed: make test installs them"
        pytest.skip("the SDKs are not installed: make test installs them")

    async def run(
        sdk: str, *steps: dict[str, Any], key: str = proxy.key, url: str = proxy.url
    ) -> list[dict[str, Any]]:
        lines = "".join(json.dumps(step) + "\n" for step in steps).encode()
        process = await asyncio.create_subprocess_exec(
            str(PYTHON), str(DRIVERS), sdk, url, key, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        async with asyncio.timeout(90):
            out, _ = await process.communicate(lines)
        results = [json.loads(line) for line in out.splitlines() if line.startswith(b"{")]
        assert len(results) == len(steps), out.decode()
        return results

    return run
