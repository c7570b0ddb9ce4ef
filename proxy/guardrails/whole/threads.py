"""Rules that look at the texts of a call from threads, side by side, none beyond its deadline.

Nothing interrupts a thread, so each is given one sheet at a time: what is late ends with the sheet
that it is at. A deadline is spent by work alone: by what it takes to read the sheets, and by what
the rule itself does, in seconds of a processor. Callers take turns with their sheets; how long a
call waits for its turns in all has a bound of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from proxy.frozen import frozen
from proxy.guardrails.aside import Aside
from proxy.guardrails.findings.tally import BUSY, Clock, RuleTally
from proxy.guardrails.text.walk import Text
from proxy.guardrails.whole.sheets import RuleLook, Sheet, sheets


@frozen
class Threads:
    """The rules of one call at work in the turns of its caller. ``clock`` is that of a thread's
    own work."""

    aside: Aside
    clock: Clock
    looks: Sequence[RuleLook]
    most_s: float

    @classmethod
    def of(
        cls, aside: Aside, clock: Clock, tallies: Sequence[RuleTally], most_wait_s: float
    ) -> Threads:
        looks = [RuleLook(_apart(tally), number) for number, tally in enumerate(tallies)]
        longest = max([tally.rule.deadline_s for tally in tallies], default=0)
        return cls(aside, clock, looks, longest + most_wait_s)

    async def look(self, texts: Sequence[Text]) -> list[RuleLook]:
        """Return what each rule has found in the texts."""
        coming = sheets(texts, self.looks)
        try:
            async with asyncio.timeout(self.most_s):
                while at_work := [look for look in self.looks if not look.done]:
                    if not await self._turn(coming, at_work):
                        break
        except TimeoutError:  # a thread that is at work goes on with a tally that nobody reads
            return [look if look.done else _busy(look) for look in self.looks]
        return [*self.looks]

    async def _turn(self, coming: Iterator[Sheet], at_work: Sequence[RuleLook]) -> bool:
        """Read the next sheet and let all rules look at it; False if there is none."""
        async with self.aside.taken():
            sheet, seconds = await self.aside.within(lambda: self._read(coming))
            if sheet is None:
                return False
            async with asyncio.TaskGroup() as group:
                for look in at_work:
                    look.spend(seconds)
                    if not look.done:
                        group.create_task(self._see(look, sheet))
        return True

    def _read(self, coming: Iterator[Sheet]) -> tuple[Sheet | None, float]:
        """Return the next sheet, and how long it took to read."""
        began = self.clock()
        return next(coming, None), self.clock() - began

    async def _see(self, look: RuleLook, sheet: Sheet) -> None:
        await self.aside.within(lambda: look.see(sheet))


def _busy(look: RuleLook) -> RuleLook:
    """Return a look that has seen nothing, as the threads had no time for it."""
    look = RuleLook(_apart(look.tally), look.number)
    look.fail(BUSY)
    return look


def _apart(tally: RuleTally) -> RuleTally:
    return RuleTally(tally.rule, tally.clock, opaque=tally.opaque)
