"""How long the adversary tries: briefly in every run of the tests, for as long as is wanted at
night."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.fields import Start, policies
from tests.conftest import Proxy, running_proxy
from tests.doubles import ScriptedUpstream

LONGEST_S = 600
"""How long one of these tests may take: they draw much, and other programs may be busy too."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Disable the timeout of these tests unless `--timeout` is given."""
    if config.getoption("timeout") is not None:
        return
    for item in items:
        if "adversary" in item.path.parts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_S))


@pytest.fixture
def examples(request: pytest.FixtureRequest) -> int:
    """Number of random requests or sequences per test."""
    return int(request.config.getoption("--examples"))


@pytest.fixture
def collected() -> None:
    """Have garbage collected as where the proxy is served: what a test run has gathered in memory
    is not gone through while the loop is measured."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def start(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Start]:
    """Start a proxy. It runs until the test ends."""
    async with AsyncExitStack() as proxies:

        async def start_proxy(*policy: str, **extra: Any) -> Proxy:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            running = running_proxy(folder, policies(upstream.url, *policy, **extra))
            return await proxies.enter_async_context(running)

        yield start_proxy
