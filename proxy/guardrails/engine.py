"""The rules of one call at work on its texts: a whole request, a whole answer, or a stream.

Every rule looks at every text that it applies to, and what each has seen and said is told, also
when the first of them has already stopped the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from proxy.errors import GuardBlocked
from proxy.guardrails.asking import Asking, Inquiry, Nowhere, seen, unasked
from proxy.guardrails.deltas import Deltas
from proxy.guardrails.masking import Replace, Spot, masked, named, spots, within_json
from proxy.guardrails.opening import Opening
from proxy.guardrails.question import parted, question_of
from proxy.guardrails.rule import Clock, Tally
from proxy.guardrails.seams import Seam, seams
from proxy.guardrails.texts import Path, Text
from proxy.guardrails.view import View, readings
from proxy.ports import Outsides
from proxy.record import Record
from proxy.types import Chunk, Json
from proxy.types.guard import Result, Rule, looks, weighs

ABOVE = 16 * 1024  # characters of all texts together, from which on looking leaves the event loop


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the rules say of texts. ``changes`` are the texts to put in place, by their paths;
    ``routed`` is the rule that says where the call goes."""

    results: tuple[Result, ...]
    changes: dict[Path, str]
    blocked: GuardBlocked | None = None
    routed: Rule | None = None

    def permit(self) -> None:
        """Raise ``GuardBlocked`` where a rule stops the call."""
        if self.blocked is not None:
            raise self.blocked


@dataclass(frozen=True, slots=True)
class _Read:
    text: Text
    views: tuple[View, ...]
    bytes: int
    seam: Seam | None = None


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs rules, which are bound to their call. ``pool`` is bounded by who makes it; without one
    all is done on the loop. ``outsides`` gives the ways to those whom rules ask."""

    clock: Clock
    pool: Executor | None = None
    above: int = ABOVE
    outsides: Outsides = Nowhere()  # noqa: RUF009  # it is frozen

    async def inspect(
        self, rules: Sequence[Rule], texts: Sequence[Text], replace: Replace = named
    ) -> Inspection:
        """Look at whole texts. Never raises for what a rule finds: see ``Inspection.permit``."""
        tallies = [Tally(rule, self.clock) for rule in rules]
        if self.pool is not None and _weight(rules, texts) > self.above:
            found = await self._aside(self.pool, tallies, texts)
        else:
            read = _whole_readings(texts)
            found = [_look(number, tally, read) for number, tally in enumerate(tallies)]
        return _inspection(tallies, texts, found, replace)

    async def ask(
        self,
        rules: Sequence[Rule],
        texts: Sequence[Text],
        inquiry: Inquiry,
        replace: Replace = named,
    ) -> Inspection:
        """Ask services of whole texts; like ``inspect`` in all else."""
        read = _readings(texts)
        reads = [each for text in read for each in seen(text.views, text.text.kind, text.text.role)]
        tallies = await inquiry.tallies(rules, reads)
        found = [_look(number, tally, read) for number, tally in enumerate(tallies)]
        return _inspection(tallies, texts, found, replace)

    def inquiry(self, body: Json, record: Record) -> Inquiry:
        """Prepare to ask about one call, whose request this is."""
        return Inquiry(question_of(body), self.outsides.of(record), self.clock)

    def unasked(self, services: Sequence[Rule]) -> list[Result]:
        """Give what is to be told of services when a call is stopped before they are asked."""
        return [tally.result() for tally in unasked(services, self.clock)]

    def watch(
        self, rules: Sequence[Rule], inquiry: Callable[[], Inquiry], replace: Replace = named
    ) -> Watching:
        """Start to look at a stream; ``inquiry`` is called where a rule asks somebody."""
        own, services = parted(rules)
        tallies = [Tally(rule, self.clock) for rule in own]
        if not services:
            return Watching(tallies, replace)
        ask = partial(inquiry().tallies, services)
        return Watching(tallies, replace, Asking(services, self.clock, ask, replace))

    async def _aside(
        self, pool: Executor, tallies: Sequence[Tally], texts: Sequence[Text]
    ) -> list[_Found]:
        """Look from threads, all rules side by side, none longer than its deadline."""
        loop = asyncio.get_running_loop()
        read = await loop.run_in_executor(pool, _whole_readings, texts)

        async def looked(number: int, tally: Tally) -> _Found:
            apart = Tally(tally.rule, tally.clock)  # a thread that is late goes on with its own
            job = loop.run_in_executor(pool, _look, number, apart, read)
            try:
                found = await asyncio.wait_for(job, tally.rule.deadline_s)
            except TimeoutError:
                return _Found(tally, [], _failed(tally, "deadline"))
            return found

        async with asyncio.TaskGroup() as group:
            jobs = [
                group.create_task(looked(number, tally)) for number, tally in enumerate(tallies)
            ]
        return [job.result() for job in jobs]


class Watching:
    """One stream under its rules."""

    __slots__ = ("_asking", "_deltas", "_opening", "_tallies")

    def __init__(
        self, tallies: Sequence[Tally], replace: Replace, asking: Asking | None = None
    ) -> None:
        self._tallies = tallies
        self._deltas = Deltas.under(tallies, replace)
        self._asking = asking
        holds = any(tally.rule.enforces for tally in tallies)
        self._opening = Opening(waits=holds or (asking is not None and asking.holds))

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        """Take the next chunk, give what may be shown. Raises ``GuardBlocked``."""
        safe: Sequence[Chunk] = self._deltas.feed(chunk)
        if self._asking is not None:
            safe = await self._asking.feed(safe)
        return self._opening.feed(safe)

    def results(self) -> tuple[Result, ...]:
        """Say what each guard has seen and found so far."""
        asked = self._asking.results() if self._asking is not None else ()
        return (*(tally.result() for tally in self._tallies), *asked)


@dataclass(frozen=True, slots=True)
class _Found:
    """What one rule has found, as pairs of a text's number and a spot in it."""

    tally: Tally
    spots: list[tuple[int, Spot]]
    failure: GuardBlocked | None = None


def _weight(rules: Sequence[Rule], texts: Sequence[Text]) -> int:
    """Give how many characters there are to read, in the texts and beside them."""
    ways = (rule.detector for rule in rules)
    beside = sum(way.weight for way in ways if weighs(way))
    return beside + sum(len(text.text) for text in texts)


def _readings(texts: Sequence[Text]) -> list[_Read]:
    return [
        _Read(
            text,
            readings(text.text, escaped=text.escaped),
            len(text.text.encode("utf-8", "surrogatepass")),
        )
        for text in texts
    ]


def _whole_readings(texts: Sequence[Text]) -> list[_Read]:
    """Read texts, and the parts of a message together."""
    across = [_Read(seam.text, readings(seam.text.text), 0, seam) for seam in seams(texts)]
    return [*_readings(texts), *across]


def _failed(tally: Tally, error: str) -> GuardBlocked | None:
    try:
        tally.fail(error)
    except GuardBlocked as blocked:
        return blocked
    return None


def _look(number: int, tally: Tally, read: Sequence[_Read]) -> _Found:
    """Let one rule look at all texts that it applies to, within its deadline for all of them."""
    found: list[tuple[int, Spot]] = []
    for place, each in enumerate(read):
        if not tally.rule.applies(each.text.role, each.text.kind):
            continue
        if each.seam is not None and not _bounded(tally.rule):
            continue
        left_s = tally.rule.deadline_s - tally.seconds
        try:
            seen = spots(tally, number, each.views, left_s=left_s)
        except GuardBlocked as blocked:
            return _Found(tally, found, blocked)
        if tally.error is not None:
            break  # what failed has seen nothing, and is not asked again
        if each.seam is not None:
            found += _across(tally, each.seam, seen, found)
            continue
        tally.bytes += each.bytes
        tally.fields += 1
        for spot in seen:
            tally.count(spot.kind, spot.score)
            found.append((place, spot))
    return _Found(tally, found)


def _bounded(rule: Rule) -> bool:
    """Say whether a rule looks for places in a text: what judges a whole one judges each part."""
    return looks(rule.detector) and rule.detector.reach is not None


def _across(
    tally: Tally, seam: Seam, seen: Sequence[Spot], found: Sequence[tuple[int, Spot]]
) -> list[tuple[int, Spot]]:
    """Give what goes across the parts of a message, and is not found in one of them already."""
    known: dict[int, list[Spot]] = {}
    for number, spot in found:
        known.setdefault(number, []).append(spot)
    new: list[tuple[int, Spot]] = []
    for pieces in seam.across(seen):
        if not any(_meets(piece, known.get(number, ())) for number, piece in pieces):
            tally.count(pieces[0][1].kind, pieces[0][1].score)
            new += pieces
    return new


def _meets(piece: Spot, known: Sequence[Spot]) -> bool:
    return any(piece.start < each.end and each.start < piece.end for each in known)


def _inspection(
    tallies: Sequence[Tally], texts: Sequence[Text], found: Sequence[_Found], replace: Replace
) -> Inspection:
    rules = [tally.rule for tally in tallies]
    blocked = _first_block(found)
    by_text: dict[int, list[Spot]] = {}
    for each in found:
        if each.tally.rule.masks and each.tally.error is None:
            for place, spot in each.spots:
                by_text.setdefault(place, []).append(spot)
    changes: dict[Path, str] = {}
    if blocked is None:
        for place, its in by_text.items():
            text = texts[place]
            put = within_json(replace) if text.escaped else replace
            changes[text.path] = masked(text.text, sorted(its, key=_order), rules, put)
    routed = (each.tally.rule for each in found if each.spots and each.tally.error is None)
    to = next((rule for rule in routed if rule.action == "route" and rule.enforces), None)
    return Inspection(tuple(each.tally.result() for each in found), changes, blocked, to)


def _first_block(found: Sequence[_Found]) -> GuardBlocked | None:
    """Give the first block in the order of the rules; one that broke counts like one that found."""
    for each in found:
        if each.failure is not None:
            return each.failure
        rule = each.tally.rule
        if rule.stops and each.spots and each.tally.error is None:
            return each.tally.block(each.spots[0][1].kind)
    return None


def _order(spot: Spot) -> tuple[int, int, int]:
    return spot.order
