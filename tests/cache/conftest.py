"""Fixtures of cache tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cache.cached_proxy import Cached, cached_proxy
from tests.cache.stores import until
from tests.doubles import ScriptedUpstream


@pytest.fixture
async def cached(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Cached]:
    async with cached_proxy(tmp_path / "policies", upstream) as running:
        yield running

        async def over() -> bool:
            return not running.cache.flights

        await until(over)
    assert running.bugs == []
