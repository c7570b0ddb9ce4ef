"""Rules that look at the texts of a call from threads, side by side, none beyond its deadline.

Nothing interrupts a thread, so each is given one sheet at a time: what is late ends with the sheet
that it is at. Callers take turns with their sheets, so that the memory and the time which readings
take do not grow with how many calls there are; to wait for a turn counts for the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from proxy.frozen import frozen
from proxy.guardrails.aside import Aside
from proxy.guardrails.findings.tally import Clock, RuleTally
from proxy.guardrails.text.walk import Text
from proxy.guardrails.whole.sheets import RuleLook, Sheet, sheets


@frozen
class Threads:
    """The rules of one call at work in the turns of its caller."""

    aside: Aside
    clock: Clock
    looks: Sequence[RuleLook]
    ends: list[float]

    @classmethod
    def of(cls, aside: Aside, clock: Clock, tallies: Sequence[RuleTally]) -> Threads:
        now = clock()
        looks = [RuleLook(_apart(tally), number) for number, tally in enumerate(tallies)]
        return cls(aside, clock, looks, [now + tally.rule.deadline_s for tally in tallies])

    async def look(self, texts: Sequence[Text]) -> list[RuleLook]:
        """Return what each rule has found in the texts."""
        coming = sheets(texts, self.looks)
        while at_work := [look for look in self.looks if not look.done]:
            try:
                async with asyncio.timeout(max(map(self._left_s, at_work))):
                    is_left = await self._turn(coming, at_work)
            except TimeoutError:
                for look in at_work:
                    _leave(look)
                break
            if not is_left:
                break
        return [_late(look) if look.late else look for look in self.looks]

    async def _turn(self, coming: Iterator[Sheet], at_work: Sequence[RuleLook]) -> bool:
        """Read the next sheet and let all rules look at it; False if there is none."""
        async with self.aside.turn:
            sheet = await self.aside.within(lambda: next(coming, None))
            if sheet is None:
                return False
            async with asyncio.TaskGroup() as group:
                jobs = [group.create_task(self._see(look, sheet)) for look in at_work]
            now = self.clock()
            for look, job in zip(at_work, jobs, strict=True):
                self.ends[look.number] += now - job.result()  # others were slower: not its time
        return True

    async def _see(self, look: RuleLook, sheet: Sheet) -> float:
        """Let a rule look at a sheet; return when it was done."""
        try:
            async with asyncio.timeout(self._left_s(look)):
                return await self.aside.within(lambda: self._seen(look, sheet))
        except TimeoutError:
            _leave(look)
        return self.clock()

    def _seen(self, look: RuleLook, sheet: Sheet) -> float:
        """Return when it was done: the loop may come to hear of it much later."""
        look.see(sheet)
        return self.clock()

    def _left_s(self, look: RuleLook) -> float:
        return self.ends[look.number] - self.clock()


def _leave(look: RuleLook) -> None:
    """Let a rule look at no more sheets; a thread that is late ends with its own tally."""
    look.late = True
    look.tally.error = "deadline"


def _late(look: RuleLook) -> RuleLook:
    look = RuleLook(_apart(look.tally), look.number)
    look.fail("deadline")
    return look


def _apart(tally: RuleTally) -> RuleTally:
    return RuleTally(tally.rule, tally.clock, opaque=tally.opaque)
