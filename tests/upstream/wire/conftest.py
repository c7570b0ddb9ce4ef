"""Tests of connections run on uvloop and on asyncio's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from proxy.upstream.client import HttpClient
from tests.doubles import TRUST


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with HttpClient(TRUST) as client:
        yield client
