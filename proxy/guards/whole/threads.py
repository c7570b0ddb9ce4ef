"""Inspects the texts of a call in threads, the rules side by side.

Nothing interrupts a thread, so a late rule ends after its batch. A deadline counts seconds of CPU:
of reading the batches and of the rule itself. Callers take turns with their batches; the total wait
of a call has a separate bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from proxy.guards.aside import GuardThreads
from proxy.guards.findings.tally import BUSY, Clock, RuleTally
from proxy.guards.text.walk import Text
from proxy.guards.whole.text_batches import RuleInspection, TextBatch, batches
from proxy.runtime.frozen import frozen


@frozen
class Threads:
    """The rules of one call in the turns of its caller. ``clock`` measures the CPU of a thread."""

    aside: GuardThreads
    clock: Clock
    inspections: Sequence[RuleInspection]
    most_s: float

    @classmethod
    def of(
        cls, aside: GuardThreads, clock: Clock, tallies: Sequence[RuleTally], most_wait_s: float
    ) -> Threads:
        inspections = [
            RuleInspection(_apart(tally), number) for number, tally in enumerate(tallies)
        ]
        longest = max([tally.rule.deadline_s for tally in tallies], default=0)
        return cls(aside, clock, inspections, longest + most_wait_s)

    async def look(self, texts: Sequence[Text]) -> list[RuleInspection]:
        """Return the findings of each rule."""
        remaining = batches(texts, self.inspections)
        try:
            async with asyncio.timeout(self.most_s):
                while pending := [
                    inspection for inspection in self.inspections if not inspection.done
                ]:
                    if not await self._turn(remaining, pending):
                        break
        except TimeoutError:  # a running thread continues with a tally that nobody reads
            return [
                inspection if inspection.done else _busy(inspection)
                for inspection in self.inspections
            ]
        return [*self.inspections]

    async def _turn(
        self, remaining: Iterator[TextBatch], pending: Sequence[RuleInspection]
    ) -> bool:
        """Inspect the next batch with all rules. Return False if there is none."""

        def read() -> tuple[TextBatch | None, float]:
            started_at = self.clock()
            return next(remaining, None), self.clock() - started_at

        async with self.aside.taken():
            batch, seconds = await self.aside.within(read)
            if batch is None:
                return False
            async with asyncio.TaskGroup() as group:
                for inspection in pending:
                    inspection.spend(seconds)
                    if not inspection.done:
                        group.create_task(self._see(inspection, batch))
        return True

    async def _see(self, inspection: RuleInspection, batch: TextBatch) -> None:
        await self.aside.within(lambda: inspection.see(batch))


def _busy(inspection: RuleInspection) -> RuleInspection:
    """Return an inspection without findings, because the threads had no time for it."""
    inspection = RuleInspection(_apart(inspection.tally), inspection.number)
    inspection.fail(BUSY)
    return inspection


def _apart(tally: RuleTally) -> RuleTally:
    return RuleTally(tally.rule, tally.clock, opaque=tally.opaque)
