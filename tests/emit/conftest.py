"""What tests of emitters share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.emit.collector import Collector, collecting


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as kept:
        yield kept
