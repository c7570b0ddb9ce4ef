"""Runs the drivers in the environment of the real SDKs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy
from tests.sdks.drivers import ENDED

TOP = Path(__file__).parents[2]
PYTHON = TOP / ".venv-sdks" / "bin" / "python"
LONGEST_S = 90

Drive = Callable[..., Awaitable[list[dict[str, Any]]]]


class Drivers:
    """The process that follows orders, one after the other. It is started with the first, and anew
    after one that took too long."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def follow(self, order: dict[str, Any]) -> list[str]:
        """Return the lines that were written for an order; fewer of one that took too long."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        too_long = threading.Timer(LONGEST_S, os.killpg, (process.pid, signal.SIGKILL))
        too_long.start()
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            return [*takewhile(lambda line: line != ENDED, process.stdout)]
        finally:
            too_long.cancel()
            if process.poll() is not None:
                self.stop()

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [str(PYTHON), "-m", "tests.sdks.drivers"],
            cwd=TOP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # what it forks is ended with it
        )
        return self._process

    def stop(self) -> None:
        """End the process, if there is one: it leaves when there are no more orders."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()


@pytest.fixture(scope="session")
def drivers() -> Iterator[Drivers]:
    """What follows the orders of all tests: each imports an SDK only if none has before."""
    following = Drivers()
    yield following
    following.stop()


@pytest.fixture
def drive(proxy: Proxy, drivers: Drivers) -> Drive:
    """Give what drives an SDK through steps and returns what it gave for each."""
    if not PYTHON.exists():
        assert not os.environ.get("CI"), "the SDKs are not installed: make test installs them"
        pytest.skip("the SDKs are not installed: make test installs them")

    async def run(
        sdk: str, *steps: dict[str, Any], key: str = proxy.key, url: str = proxy.url
    ) -> list[dict[str, Any]]:
        order = {"sdk": sdk, "base": url, "key": key, "steps": steps}
        lines = await asyncio.to_thread(drivers.follow, order)
        results = [json.loads(line) for line in lines if line.startswith("{")]
        assert len(results) == len(steps), lines
        return results

    return run
