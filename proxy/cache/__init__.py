"""Response cache: serves cached responses and coalesces equal calls.

A call is identified by a key over its caller, deployment, request and policy. Where a rule enables
it, ``semantic`` also finds responses to similar prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial

from proxy.cache.cache_call import CacheCall, Flights
from proxy.cache.cache_control import read_cache_control
from proxy.cache.cached_answer import DecodedAnswers
from proxy.cache.key import compute_cache_key
from proxy.cache.semantic import SemanticCache, SemanticLookup
from proxy.cache.store import CacheBackend
from proxy.call.record import Record
from proxy.dialects.request_headers import REFRESH_IGNORED
from proxy.ports import FetchResponse, Sink
from proxy.runtime.fair_queue import Offload, PauseScheduler
from proxy.runtime.frozen import frozen
from proxy.types import Call, Plan


class NullCache:
    """Cache without entries: forwards every call."""

    async def serve(
        self, plan: Plan, call: Call, record: Record, client: Sink, forward: FetchResponse
    ) -> None:
        await forward(client)


@frozen
class AnswerCache:
    """Response cache of a process. ``backends`` are its stores, by the names that rules use.

    ``now`` returns seconds since the epoch. ``offload`` computes keys of large requests and reads
    and writes large responses. ``pause_scheduler`` orders long replays. Calls share ``flights`` and
    the recently ``decoded`` responses.

    A call is forwarded uncached if no rule matches or the rule's store is missing. So is a call
    that requests several models, because their responses succeed and fail separately.
    """

    backends: Mapping[str, CacheBackend]
    now: Callable[[], float]
    semantic: SemanticCache | None = None
    offload: Offload = Offload()
    pause_scheduler: PauseScheduler = field(default_factory=PauseScheduler)
    flights: Flights = field(default_factory=dict)
    decoded: DecodedAnswers = field(default_factory=DecodedAnswers)

    async def serve(
        self, plan: Plan, call: Call, record: Record, client: Sink, forward: FetchResponse
    ) -> None:
        rule = plan.cache
        backend = self.backends.get(rule.store) if rule is not None else None
        if rule is None or backend is None or len(plan.model_calls) != 1:
            return await forward(client)
        control = read_cache_control(call.head.headers)
        if not plan.may_refresh and (control.no_cache or control.max_age is not None):
            # A refresh costs money, so the key needs a permission.
            record.add_warnings([REFRESH_IGNORED])
            control = replace(control, no_cache=False, max_age=None)
        if control.no_cache and not control.allows_storing:
            return await forward(client)

        async def compute_call_key(call: Call) -> bytes:
            space = control.namespace
            compute = partial(compute_cache_key, backend.secret, call, plan, rule, space)
            return await self.offload.run(call.size, compute, call.scheduling_key)

        semantic = None
        if self.semantic is not None and rule.semantic is not None and control.allows_storing:
            semantic = SemanticLookup(
                self.semantic,
                rule,
                rule.semantic,
                plan=plan,
                call=call,
                compute_call_key=compute_call_key,
            )
        await CacheCall(
            cache=self,
            plan=plan,
            call=call,
            record=record,
            client=client,
            forward=forward,
            rule=rule,
            backend=backend,
            key=await compute_call_key(call),
            control=control,
            semantic=semantic,
        ).run()
