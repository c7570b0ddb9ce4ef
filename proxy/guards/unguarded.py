"""The gate of a call that no guard looks at: it costs the call next to nothing, and a process whose
policies have no guards nothing at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.call.record import Record
from proxy.errors import ProxyError
from proxy.ports import CallGuards, Guards, OutputGuards
from proxy.runtime.frozen import frozen
from proxy.types import Call, Plan, ResponseHead
from proxy.types.events import Frame


@frozen
class OpenGate:
    """Lets a call pass as it is."""

    plan: Plan
    call: Call

    async def inspect(self) -> tuple[Plan, Call]:
        return self.plan, self.call

    async def redact_error(self, error: ProxyError) -> None:
        """An upstream's words stay as they are."""

    def guard_output(self, call: Call, head: ResponseHead) -> OutputGuards:
        return OPEN


@frozen
class NoOutputGuards:
    """Lets an answer pass as it is."""

    retry_requested: bool = False

    def try_inspect(self, frame: Frame) -> Sequence[Frame]:
        return (frame,)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        return (frame,)

    def abort(self) -> Sequence[Frame]:
        """Nothing was held back."""
        return ()


OPEN = NoOutputGuards()


class GuardsOnDemand:
    """The guards of policies that may have none: ``make`` is called when a call first has some."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Guards]) -> None:
        self._make = make
        self._made: Guards | None = None

    def for_call(self, plan: Plan, call: Call, record: Record) -> CallGuards:
        guards = plan.guards
        if not (guards.input or guards.output or guards.capture):
            return OpenGate(plan, call)
        if self._made is None:
            self._made = self._make()
        return self._made.for_call(plan, call, record)
