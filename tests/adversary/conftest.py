"""Fixtures of tests with hostile input. Option ``--examples`` sets how many are drawn."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.request_calls import Start, build_policies
from tests.conftest import Proxy, running_proxy
from tests.doubles import ScriptedUpstream

TIMEOUT_S = 600
"""Timeout of one test on a busy machine."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the timeout of these tests unless `--timeout` is given."""
    if config.getoption("timeout") is not None:
        return
    for item in items:
        if "adversary" in item.path.parts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> int:
    """Number of random requests or sequences per test."""
    return int(request.config.getoption("--examples"))


@pytest.fixture
def collected() -> None:
    """Freeze the objects of the test run, so that the collector does not hold the loop."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def start(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Start]:
    """Start a proxy. It runs until the test ends."""
    async with AsyncExitStack() as proxies:

        async def start_proxy(*policy: str, **extra: Any) -> Proxy:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            running = running_proxy(folder, build_policies(upstream.url, *policy, **extra))
            return await proxies.enter_async_context(running)

        yield start_proxy
