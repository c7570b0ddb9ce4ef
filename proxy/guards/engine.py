"""The rules of one call at work on its texts: a whole request, a whole answer, or a stream.

Every rule looks at every text that it applies to, and each has a result, also when the first of
them has already stopped the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import field
from dataclasses import replace as copied
from functools import partial
from typing import TypeVar

from proxy.call.record import Record
from proxy.errors import GuardBlocked
from proxy.guards.aside import GuardThreads, unobserved
from proxy.guards.context import question_of, split_enforcing, split_services
from proxy.guards.findings.mask import Replace, TextMatch, masked, named, within_json
from proxy.guards.findings.tally import Clock, RuleTally
from proxy.guards.services.stage import (
    NoEgress,
    Reading,
    ServiceCalls,
    ServiceStage,
    seen,
    unasked,
)
from proxy.guards.stream.feeding import Feeding, FirstContent, InTime
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.text.plain_chat import PLAIN_READERS
from proxy.guards.text.text_walker import EACH, MOST_TEXTS, TextWalker, in_steps, weight_of
from proxy.guards.text.walk import Found, Path, Text, Texts
from proxy.guards.whole.joined_parts import joined_parts, weight_of_joined
from proxy.guards.whole.prefilter import prefilter_rules
from proxy.guards.whole.text_batches import RuleInspection, batches, part_of
from proxy.guards.whole.threads import Threads
from proxy.ports import GuardClients
from proxy.runtime.frozen import frozen
from proxy.runtime.offload import LARGE_BYTES
from proxy.runtime.turns import Turns
from proxy.types import Json
from proxy.types.events import Frame
from proxy.types.guard import GuardResult, GuardRule, is_weighted

ABOVE = 16 * 1024  # the weight of all texts together, from which on looking leaves the event loop
TOGETHER = 256 * 1024  # the weight of texts that are looked at together, before each of them
STEP_ASIDE = 8 * 1024  # values that a thread reads in one go
MOST_WAIT_S = 10.0
SHEETS = 2  # that are read at a time, of all calls whose texts are looked at by threads


T = TypeVar("T")


@frozen
class Inspection:
    """What rules found in texts. ``changes`` are the new texts by their paths; ``routed`` is the
    rule that routes the call."""

    results: tuple[GuardResult, ...]
    changes: dict[Path, str]
    blocked: GuardBlocked | None = None
    routed: GuardRule | None = None

    def permit(self) -> None:
        """Raise ``GuardBlocked`` where a rule stops the call."""
        if self.blocked is not None:
            raise self.blocked


@frozen
class Engine:
    """Runs rules, which are bound to their call. ``pool`` is bounded by who makes it, and used in
    ``turns`` alone; without one all is done on the loop. ``outsides`` reaches the services that
    rules ask; ``most_texts`` are read of all arguments of one document.

    ``clock`` is that by which rules have deadlines: of a thread's own work, so that what others do
    makes nobody late. ``most_wait_s`` is how long the guards of a call wait for turns beside that,
    and ``on_wait`` gets the seconds of each wait. ``now`` is the clock of what services take, the
    same where it is None.
    """

    clock: Clock
    pool: Executor | None = None
    above: int = ABOVE
    outsides: GuardClients = NoEgress()  # it is frozen
    most_texts: int = MOST_TEXTS
    turns: Turns = field(default_factory=partial(Turns, SHEETS))
    most_wait_s: float = MOST_WAIT_S
    on_wait: Callable[[float], None] = unobserved
    now: Clock | None = None

    async def inspect(
        self,
        rules: Sequence[GuardRule],
        texts: Texts | Sequence[Text],
        replace: Replace = named,
        caller: object = None,
        known: Sequence[GuardResult | None] = (),
    ) -> Inspection:
        """Look at whole texts, in the turns of a caller. Never raises for what a rule finds: see
        ``Inspection.permit``. ``known`` is the results of ``prefilter_rules``."""
        read = texts if isinstance(texts, Texts) else Texts(tuple(texts))
        known = known or prefilter_rules(rules, read, self.above, self.clock)
        if not any(known) and self._is_heavy((), read):
            known = await self._prefilter_in_thread(rules, read, caller)
        passed = [each for each in known if each is not None]
        if len(passed) == len(known):
            return Inspection(tuple(passed), {})
        left = [rule for rule, result in zip(rules, known, strict=True) if result is None]
        found = await self._look(left, read, replace, caller)
        return copied(found, results=_merged(known, found.results))

    async def _prefilter_in_thread(
        self, rules: Sequence[GuardRule], read: Texts, caller: object
    ) -> list[GuardResult | None]:
        """Look at heavy texts together where it holds up nobody, unless that has to wait long."""
        look = partial(prefilter_rules, rules, read, TOGETHER, self.clock)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.most_wait_s):
                return await self.beside(caller)(look)
        return [None] * len(rules)

    async def _look(
        self, rules: Sequence[GuardRule], read: Texts, replace: Replace, caller: object
    ) -> Inspection:
        """Let each rule look at each text."""
        texts = read.texts
        tallies = [RuleTally(rule, self.clock, opaque=bool(read.opaque)) for rule in rules]
        if read.unread is not None:
            return _inspection(_failed(tallies, read.unread), texts, replace)
        if self._is_heavy(rules, read):
            aside = self.beside(caller)
            threads = Threads.of(aside, self.clock, tallies, self.most_wait_s)
            looks = await threads.look(texts)
            made = partial(_inspection, looks, texts, replace)
            return await aside(made) if _is_to_mask(looks) else made()
        return inspect_now(tallies, texts, replace)

    def _is_heavy(self, rules: Sequence[GuardRule], read: Texts) -> bool:
        """True if threads have to look; of many texts none is weighed to tell."""
        if self.pool is None:
            return False
        if EACH * len(read.texts) > self.above:
            return True
        left = self.above - _weight(rules, read.texts)
        return left < 0 or (not read.apart and weight_of_joined(read.texts) > left)

    async def aside(self, weight: int, job: Callable[[], T], caller: object) -> T:
        """Return what a caller's work gives: what is as much as to look at texts of a weight is
        done where it holds up nobody."""
        return job() if weight <= self.above else await self.beside(caller)(job)

    def beside(self, caller: object) -> GuardThreads:
        """Return where work of a caller holds up nobody, in its turns."""
        return GuardThreads(self.pool, self.turns.of(caller), self.on_wait)

    async def read(
        self,
        walk: Callable[[Json], Iterator[Found]],
        data: Json,
        size: int,
        caller: object = None,
    ) -> Texts:
        """Return the texts of a document of ``size`` bytes: a large one is walked by a thread, in
        the turns of a caller, as one text may be megabytes that are decoded; any other in steps."""
        if self.pool is None or size <= LARGE_BYTES:
            read = PLAIN_READERS.get(walk)
            usual = read(data) if read else None
            return usual or await in_steps(walk(data), self.most_texts)
        walker, aside = TextWalker(walk(data), self.most_texts), self.beside(caller)
        unfinished = True
        # Each step has a turn of its own: a call that is cancelled has no more of them.
        while unfinished:
            unfinished = await aside(partial(walker.advance, STEP_ASIDE))
        return walker.texts

    async def ask(
        self,
        rules: Sequence[GuardRule],
        texts: Texts | Sequence[Text],
        inquiry: ServiceCalls,
        replace: Replace = named,
        caller: object = None,
    ) -> Inspection:
        """Ask services of whole texts; like ``inspect`` in all else."""
        if isinstance(texts, Texts) and texts.unread is not None:
            failed = _failed(unasked(rules, self.clock), texts.unread)
            return _inspection(failed, texts.texts, replace)
        texts, opaque = _texts_of(texts)
        weight = _weight((), texts)
        reads = await self.aside(weight, partial(_reads, texts), caller)
        tallies = await inquiry.tallies(rules, reads)
        for tally in tallies:
            tally.opaque = opaque

        look = partial(inspect_now, tallies, texts, replace)
        return await self.aside(weight, look, caller)

    def inquiry(self, body: Json, record: Record) -> ServiceCalls:
        """Prepare to ask about one call, whose request this is."""
        return ServiceCalls(
            question=question_of(body),
            record=record,
            outsides=self.outsides,
            clock=self.clock,
            now=self.now or self.clock,
        )

    def unasked(self, services: Sequence[GuardRule], error: str | None = None) -> list[GuardResult]:
        """Return the results of services that were not asked: their call was stopped, or there was
        an error."""
        return [tally.result() for tally in unasked(services, self.clock, error)]

    def watch(
        self,
        rules: Sequence[GuardRule],
        inquiry: Callable[[], ServiceCalls],
        replace: Replace = named,
        *,
        caller: object = None,
    ) -> Watching:
        """Start to inspect a stream, in the turns of a caller; ``inquiry`` is called if a rule
        uses a service."""
        own, services = split_services(rules)
        tallies = [RuleTally(rule, self.clock, most_texts=self.most_texts) for rule in own]
        beside = self.beside(caller)
        calls = inquiry() if services else None
        stages = [
            ServiceStage(group, calls, replace, beside, self.most_texts)
            for group in split_enforcing(services)
            if group and calls is not None
        ]
        holds = any(tally.rule.enforces for tally in tallies) or any(each.holds for each in stages)
        feeding = Feeding(StreamFilter.under(tallies, replace), InTime(tallies, beside))
        return Watching(tallies, feeding, FirstContent(waits=holds), stages)


class Watching:
    """One stream under its rules."""

    __slots__ = ("_feeding", "_opening", "_stages", "_tallies")

    def __init__(
        self,
        tallies: Sequence[RuleTally],
        feeding: Feeding,
        opening: FirstContent,
        stages: Sequence[ServiceStage] = (),
    ) -> None:
        self._tallies = tallies
        self._feeding = feeding
        self._stages = stages
        self._opening = opening

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        """Take a frame that is little work, return the frames that may be shown. Return None, and
        take nothing, for any other. Raises ``GuardBlocked``."""
        safe = None if self._stages else self._feeding.try_inspect(frame)
        return None if safe is None else self._opening.feed(safe)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        """Take the next frame, return the frames that may be shown. Raises ``GuardBlocked``."""
        safe: Sequence[Frame] = await self._feeding.feed(frame)
        if self._feeding.opaque:
            for tally in self._tallies:
                tally.opaque = True
        for stage in self._stages:
            safe = await stage.inspect(safe)
        return self._opening.feed(safe)

    def results(self) -> tuple[GuardResult, ...]:
        """Return what each guard has read and found so far."""
        asked = [result for stage in self._stages for result in stage.results()]
        return (*(tally.result() for tally in self._tallies), *asked)


def _texts_of(texts: Texts | Sequence[Text]) -> tuple[Sequence[Text], bool]:
    return (texts.texts, bool(texts.opaque)) if isinstance(texts, Texts) else (texts, False)


def _merged(
    known: Sequence[GuardResult | None], found: Sequence[GuardResult]
) -> tuple[GuardResult, ...]:
    """Return the results that are known, and those found in the places of the others."""
    others = iter(found)
    return tuple([next(others) if each is None else each for each in known])


def _weight(rules: Sequence[GuardRule], texts: Sequence[Text]) -> int:
    """Return the weight of the texts, and of what the detectors read beside them."""
    detectors = (rule.detector for rule in rules)
    beside = sum(detector.weight for detector in detectors if is_weighted(detector))
    return beside + sum(EACH + weight_of(text.text) for text in texts)


def inspect_now(
    tallies: Sequence[RuleTally], texts: Sequence[Text], replace: Replace
) -> Inspection:
    """Look at whole texts here and now."""
    looks = [RuleInspection(tally, number) for number, tally in enumerate(tallies)]
    for sheet in batches(texts, looks):
        for look in looks:
            if not look.done:
                look.see(sheet)
    return _inspection(looks, texts, replace)


def _failed(tallies: Sequence[RuleTally], error: str) -> list[RuleInspection]:
    """Return looks that have seen nothing, as there is what nobody reads."""
    looks = [RuleInspection(tally, number) for number, tally in enumerate(tallies)]
    for look in looks:
        look.fail(error)
    return looks


def _reads(texts: Sequence[Text]) -> list[Reading]:
    """Return the readings that services get: of texts, of data only its text, and of runs."""
    parts = [part_of(place, text) for place, text in enumerate(texts) if not text.placed]
    reads = [each for part in parts for each in seen(part.views, part.text.kind, part.text.role)]
    runs = [joined for joined in joined_parts(texts) if joined.text.run is not None]
    return [
        *reads,
        *(each for run in runs for each in seen(run.views(), run.text.kind, run.text.role)),
    ]


def _inspection(
    found: Sequence[RuleInspection], texts: Sequence[Text], replace: Replace
) -> Inspection:
    rules = [each.tally.rule for each in found]
    blocked = _first_block(found)
    by_text: dict[int, list[TextMatch]] = {}
    for each in found:
        if _has_to_mask(each):
            for place, match in each.matches:
                by_text.setdefault(place, []).append(match)
    changes: dict[Path, str] = {}
    if blocked is None:
        for place, matches in by_text.items():
            text = texts[place]
            put = within_json(replace) if text.escaped else replace
            changes[text.path] = masked(text.text, sorted(matches, key=_order), rules, put)
    routed = (each.tally.rule for each in found if each.matches and each.tally.error is None)
    to = next((rule for rule in routed if rule.action == "route" and rule.enforces), None)
    return Inspection(
        results=tuple(each.tally.result() for each in found),
        changes=changes,
        blocked=blocked,
        routed=to,
    )


def _has_to_mask(look: RuleInspection) -> bool:
    return bool(look.matches) and look.tally.rule.can_mask and look.tally.error is None


def _is_to_mask(found: Sequence[RuleInspection]) -> bool:
    """True if texts are to be masked: all else that follows from looks is no work, and a call that
    is blocked as its turn was late waits for no other."""
    return any(map(_has_to_mask, found)) and _first_block(found) is None


def _first_block(found: Sequence[RuleInspection]) -> GuardBlocked | None:
    """Return the block of the first rule that blocks, be it for a finding or a failure."""
    for each in found:
        if each.failure is not None:
            return each.failure
        rule = each.tally.rule
        if rule.can_block and each.matches and each.tally.error is None:
            return each.tally.block(each.matches[0][1].kind)
    return None


def _order(match: TextMatch) -> tuple[int, int, int]:
    return match.order
