"""Answers given before: kept as they were shown, and shown again to who asks the same.

``NullCache`` keeps nothing. ``AnswerCache`` knows a question again by its key: the same caller and
deployment, the same words, the same policy; where a rule says so, in other words too: ``semantic``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from proxy.cache.cache_call import CacheCall, CacheLookup, Flights
from proxy.cache.cache_control import CacheControl, read_cache_control
from proxy.cache.key import digest
from proxy.cache.semantic import SemanticIndex
from proxy.cache.store import CacheBackend
from proxy.offload import Offload
from proxy.ports import Forward, Shown
from proxy.record import Record
from proxy.types import Call, Plan


class NullCache:
    """Keeps nothing, and lets every call pass."""

    async def serve(
        self, plan: Plan, call: Call, record: Record, client: Shown, forward: Forward
    ) -> None:
        await forward(client)


@dataclass(frozen=True, slots=True)
class AnswerCache:
    """The cache of a process. ``shelves`` are its stores by the names that rules use; ``now``
    returns seconds since the epoch. ``semantic`` finds them in other words, where a rule says so;
    ``offload`` is where the keys of large ones are made, and large answers read and written.

    A call passes by that no rule covers, whose store is not there, or that asks several models:
    their answers succeed and fail one by one, and are each other's context in one document.
    """

    shelves: Mapping[str, CacheBackend]
    now: Callable[[], float]
    semantic: SemanticIndex | None = None
    offload: Offload = Offload()  # noqa: RUF009  # it is frozen
    _flights: Flights = field(default_factory=dict)

    async def serve(
        self, plan: Plan, call: Call, record: Record, client: Shown, forward: Forward
    ) -> None:
        asked = await self._asked(plan, call, record)
        if asked is None:
            await forward(client)
        else:
            visit = CacheCall(
                asked=asked,
                flights=self._flights,
                record=record,
                client=client,
                forward=forward,
            )
            await visit.run()

    async def _asked(self, plan: Plan, call: Call, record: Record) -> CacheLookup | None:
        rule = plan.cache
        shelf = self.shelves.get(rule.store) if rule is not None else None
        if rule is None or shelf is None or len(plan.legs) != 1:
            return None
        wishes = self._wishes(plan, call, record)
        if wishes.anew and not wishes.keep:
            return None
        keyed = partial(
            digest,
            shelf.secret,
            scope=plan.key,
            plan=plan,
            call=call,
            rule=rule,
            namespace=wishes.namespace,
        )
        key = await self.offload.run(call.size, keyed, call.head.digest)
        question = None
        if self.semantic is not None and wishes.keep:
            question = await self.semantic.question(
                shelf.secret, plan, call, record, wishes.namespace, self.offload
            )
        return CacheLookup(
            plan=plan,
            call=call,
            rule=rule,
            shelf=shelf,
            key=key,
            wishes=wishes,
            now=self.now,
            question=question,
            offload=self.offload,
        )

    def _wishes(self, plan: Plan, call: Call, record: Record) -> CacheControl:
        """Asking anew costs money, so it takes a permission; without it the wish is ignored."""
        wishes = read_cache_control(call.head.headers)
        if wishes.re_asks and not plan.may_refresh:
            record.warn(["cache refresh ignored: this key may not refresh"])
            return wishes.humbled()
        return wishes
