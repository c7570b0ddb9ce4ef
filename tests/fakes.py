"""Small implementations of the product's interfaces."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar

from proxy.call.record import Record
from proxy.errors import ProxyError
from proxy.limits import Limiter
from proxy.limits.stores.memory import MemoryStore
from proxy.money.usage import Price, find_exact_or_wildcard_name, find_price_on
from proxy.types import Call, Plan, ResponseHead
from proxy.types.events import Frame
from tests.doubles import PATIENCE_S


class MemorySink:
    """Collects the records of all calls. ``wait`` returns them once there are ``count``."""

    name: ClassVar[str] = "memory"

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.begun = 0
        self._came = asyncio.Event()

    def count_begin(self, record: Record) -> None:
        self.begun += 1

    def count_end(self, record: Record) -> None:
        return None

    def emit(self, record: Record) -> None:
        self.records.append(record)
        self._came.set()

    async def wait(self, count: int = 1) -> list[Any]:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.records) < count:
                self._came.clear()
                await self._came.wait()
        return self.records

    def forget(self) -> None:
        """Drop all records."""
        self.records.clear()


class Unguarded:
    """Guards that inspect nothing."""

    is_retry_requested = False

    def build_call_guards(self, plan: Plan, call: Call, record: Record) -> Any:
        return NoCallGuards(self, plan, call)

    def build_output_guards(self) -> Any:
        return self

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        return None

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        return (frame,)

    def release_partial_placeholder(self) -> Sequence[Frame]:
        return ()


@dataclass
class NoCallGuards:
    """Guards of one call that inspect nothing."""

    guards: Unguarded
    plan: Plan
    call: Call

    async def inspect(self) -> tuple[Plan, Call]:
        return self.plan, self.call

    async def redact_error(self, error: ProxyError) -> None:
        return None

    def build_output_guards(self, call: Call, head: ResponseHead) -> Any:
        return self.guards.build_output_guards()


class EventLog:
    """Collects the events that the process would log."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.entries.append((event, fields))

    warning = error = info


def unlimited() -> Limiter:
    """Return a limiter for policies without limits."""
    return Limiter(MemoryStore(lambda: 0.0, lambda: 0.0), lambda standing: None)


@dataclass(frozen=True)
class PriceBook:
    """Prices by provider and model, found as a policy finds them."""

    rows: Mapping[str, Mapping[str, Sequence[Price]]]

    def find(self, provider: str | None, model: str, on: date) -> Price | None:
        models = self.rows.get(provider or "", {})
        name = find_exact_or_wildcard_name(models, model)
        return find_price_on(models[name], on) if name else None
