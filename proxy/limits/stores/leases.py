"""Places of calls under way are leased for seconds: who is killed gives them back by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from proxy.limits.stores.store import CounterStore
from proxy.types.limit import RENEW_S


async def renewing(store: CounterStore, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Lease the places of calls under way anew, now and then. Never ends."""
    while True:
        await sleep(RENEW_S)
        await store.renew()
