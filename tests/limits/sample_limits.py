"""Limits, claims and clocks for tests of this folder."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from proxy.limits.claims import estimate_size
from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MemoryStore
from proxy.types import NO_OVERRIDES, Call, ParameterOverrides, Target
from proxy.types.limit import Claim, Limit, LimitDecision
from proxy.types.windows import Calendar

SUPPORT = "key:support-widget"
NOON = 1_768_478_400_000  # 2026-01-15 12:00 UTC
REQUESTS = Limit("per-minute", KINDS["requests"], 100, 60)
TOKENS = Limit("tokens", KINDS["tokens"], 100, 60)
PLACES = Limit("at-once", KINDS["concurrency"], 100)
MONTH = Limit("month", KINDS["usd"], 100, Calendar("month"))


Result = TypeVar("Result")


def run_sync(operation: Coroutine[Any, Any, Result]) -> Result:
    """Run an operation that must not wait, such as one of ``MemoryStore``."""
    try:
        operation.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("the operation waits")


@dataclass
class Clock:
    """Time set by a test, in milliseconds, for both clocks of a store."""

    ms: int = NOON

    def seconds(self) -> float:
        return self.ms / 1000

    def memory(self) -> MemoryStore:
        return MemoryStore(self.seconds, self.seconds)


def claims(*call_claims: tuple[Limit, int], scope: str = SUPPORT) -> list[Claim]:
    return [Claim(limit, scope, amount) for limit, amount in call_claims]


def amounts(call_claims: Sequence[Claim]) -> list[int]:
    return [claim.amount for claim in call_claims]


def would_refuse(outcome: LimitDecision) -> tuple[str, ...]:
    """Return the shadow limits that would have refused a call."""
    return tuple(s.limit.name for s in outcome.counter_states if s.would_refuse and s.limit.shadow)


def estimate_tokens(
    call: Call, target: Target, overrides: ParameterOverrides = NO_OVERRIDES
) -> tuple[int, int] | None:
    """Return the prompt tokens and the maximum output tokens that a call claims at a target."""
    size = estimate_size(call, target, overrides)
    return (size.prompt, size.output) if size else None
