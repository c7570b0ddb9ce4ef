"""A proxy for hundreds of calls in one test, without log lines because nothing reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.settings import LogSettings
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import ScriptedUpstream


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    policies = policies_for(upstream.url)
    async with running_proxy(
        tmp_path / "policies", policies, log=LogSettings(level="error")
    ) as running:
        yield running
