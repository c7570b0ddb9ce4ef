"""A proxy with guards in front of the scripted upstream."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.conftest import Proxy
from tests.doubles import Script, ScriptedUpstream
from tests.guards.calls import guarded
from tests.guards.remote import RemoteGuard, remotely_guarded

StartRemoteGuard = Callable[..., Awaitable[RemoteGuard]]


class Guard(Protocol):
    """Starts a proxy whose default policy has guards, and sets the response of its upstream."""

    async def __call__(self, guards: str, script: Script | None = None) -> Proxy: ...


@pytest.fixture
async def guard(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Guard]:
    """Return a function that starts proxies, which run until the test ends."""
    async with AsyncExitStack() as proxies:

        async def start(guards: str, script: Script | None = None) -> Proxy:
            if script is not None:
                upstream.answer_with(script)
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            return await proxies.enter_async_context(guarded(folder, upstream, guards))

        yield start


@pytest.fixture
async def remote_guard(
    tmp_path: Path, upstream: ScriptedUpstream
) -> AsyncIterator[StartRemoteGuard]:
    """Start a proxy with a guard that asks a service. It runs until the test ends."""
    async with AsyncExitStack() as proxies:

        async def start(*guard: str, script: Script | None = None, **settings: Any) -> RemoteGuard:
            if script is not None:
                upstream.answer_with(script)
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            running = remotely_guarded(folder, upstream, *guard, **settings)
            return await proxies.enter_async_context(running)

        yield start
