"""One running proxy for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.golden.replay import Replay, replaying


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def replay(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replay]:
    async with replaying(tmp_path_factory.mktemp("golden")) as running:
        yield running
