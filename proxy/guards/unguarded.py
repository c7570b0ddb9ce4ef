"""Guards of calls whose policy has none. A process without guards imports no other guard module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.call.record import Record
from proxy.errors import ProxyError
from proxy.ports import CallGuards, Guards, OutputGuards
from proxy.runtime.frozen import frozen
from proxy.types import Call, Plan, ResponseHead
from proxy.types.events import Frame


@frozen
class NoCallGuards:
    """Passes a call unchanged."""

    plan: Plan
    call: Call

    async def inspect(self) -> tuple[Plan, Call]:
        return self.plan, self.call

    async def redact_error(self, error: ProxyError) -> None:
        """Change nothing."""

    def build_output_guards(self, call: Call, head: ResponseHead) -> OutputGuards:
        return NO_OUTPUT_GUARDS


@frozen
class NoOutputGuards:
    """Passes the frames of a response unchanged."""

    is_retry_requested: bool = False

    def try_inspect(self, frame: Frame) -> Sequence[Frame]:
        return (frame,)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        return (frame,)

    def release_partial_placeholder(self) -> Sequence[Frame]:
        return ()


NO_OUTPUT_GUARDS = NoOutputGuards()


class LazyGuards:
    """Makes the guards when the first call needs them."""

    __slots__ = ("_guards", "_make")

    def __init__(self, make: Callable[[], Guards]) -> None:
        self._make = make
        self._guards: Guards | None = None

    def build_call_guards(self, plan: Plan, call: Call, record: Record) -> CallGuards:
        guards = plan.guards
        if not (guards.input or guards.output or guards.capture):
            return NoCallGuards(plan, call)
        if self._guards is None:
            self._guards = self._make()
        return self._guards.build_call_guards(plan, call, record)
