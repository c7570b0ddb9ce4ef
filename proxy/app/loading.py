"""What is loaded at a start: before the process listens, what would hold up a call that is the
first to ask for it; all else between calls, of which no one waits for more than a few steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.background import between_calls
from proxy.edge.admin import Readiness
from proxy.edge.calls import Calls
from proxy.emit.metrics import Metrics
from proxy.policy.decide.snapshot import Snapshot
from proxy.upstream.client import HttpClient


async def prepare(snapshot: Snapshot, http: HttpClient) -> None:
    """Load what a call would be held up by, before there are any."""
    async with asyncio.TaskGroup() as loading:
        loading.create_task(http.prepare())
        await asyncio.sleep(0)  # it has a thread now, beside this one
        snapshot.prepare()


async def load_rest(
    snapshot: Snapshot,
    calls: Calls,
    readiness: Readiness,
    metrics: Metrics,
    loaded: Callable[[], None],
) -> None:
    """Load what few calls ask for, between them; then more of them are welcome. No call asks for
    what is loaded last, in a thread."""
    await between_calls(snapshot.load_rest(), calls.are_under_way)
    loaded()
    readiness.ready = True
    await asyncio.to_thread(metrics.prepare)
