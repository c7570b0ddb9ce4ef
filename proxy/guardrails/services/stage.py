"""Guards that ask somebody else: what they are asked about, and what they say put to use.

They see what the guards that look by themselves leave: what another masks is not told outside, and
nothing is asked about a call that is stopped already. What is said of a text is then a detector of
that very text, so that all else is as for any other guard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from proxy.guardrails.context import FailedDetector
from proxy.guardrails.findings.mask import Replace
from proxy.guardrails.findings.tally import Clock, RuleTally
from proxy.guardrails.stream.feeding import Beside, Feeding
from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.text.normalize import View
from proxy.guardrails.text.walk import KINDS
from proxy.guardrails.text.weight import MOST_TEXTS
from proxy.record import Record
from proxy.types import Chunk
from proxy.types.guard import (
    Action,
    Finding,
    GuardEgress,
    GuardResult,
    GuardRule,
    Piece,
    Question,
    Service,
    is_service,
)


@dataclass(frozen=True, slots=True)
class NoEgress:
    """The ways out of a process that has none."""

    request_id: str = ""

    def of(self, record: Record) -> GuardEgress:
        return self

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        raise OSError("no way out")

    async def complete(self, guard: str, deployment: str, body: Mapping[str, object]) -> str:
        raise OSError("no way out")


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a text, as a service sees it."""

    text: str
    kind: str
    role: str | None


@dataclass(frozen=True, slots=True)
class ServiceFindings:
    """What a service has said of texts, as the detector of those texts; of others it cannot."""

    findings: Mapping[str, Sequence[Finding]]
    reach: int | None = None

    def find(self, text: str) -> Sequence[Finding]:
        return self.findings[text]


class Unfit(Exception):
    """A service has answered with something that is no answer to what it was asked."""


@dataclass(frozen=True, slots=True)
class ServiceCalls:
    """One call's questions to services: what they may know of it, and the ways to them."""

    question: Question
    outside: GuardEgress
    clock: Clock

    async def tallies(
        self, rules: Sequence[GuardRule], reads: Iterable[Reading]
    ) -> list[RuleTally]:
        """Ask all services at once, each about the texts that its rule applies to and until its
        deadline. One that cannot tell becomes a detector that raises what it has raised."""
        readings = [*dict.fromkeys(reads)]
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(self._call(rule, readings)) for rule in rules]
        return [job.result() for job in jobs]

    async def _call(self, rule: GuardRule, reads: Sequence[Reading]) -> RuleTally:
        applicable = [read for read in reads if rule.applies(read.role, read.kind)]
        service = rule.detector
        if not applicable or not is_service(service):
            return unasked([rule], self.clock)[0]
        began = self.clock()
        try:
            async with asyncio.timeout(rule.deadline_s):
                findings = await self._asked(service, applicable)
            detector: ServiceFindings | FailedDetector = ServiceFindings(findings)
        except Exception as error:  # noqa: BLE001  # what it raises means that it could not tell
            detector = FailedDetector(error, reach=None)
        tally = RuleTally(replace(rule, detector=detector), self.clock)
        tally.waited = self.clock() - began
        return tally

    async def _asked(
        self, service: Service, applicable: Sequence[Reading]
    ) -> Mapping[str, Sequence[Finding]]:
        pieces: Sequence[Piece] = applicable
        answers = await service.ask(pieces, self.question, self.outside)
        found: dict[str, list[Finding]] = {}
        if len(answers) != len(applicable):
            raise Unfit
        for read, findings in zip(applicable, answers, strict=True):
            if any(not 0 <= each.start <= each.end <= len(read.text) for each in findings):
                raise Unfit
            found.setdefault(read.text, []).extend(findings)
        return found


def unasked(rules: Iterable[GuardRule], clock: Clock) -> list[RuleTally]:
    """Return the tallies of services that were asked nothing."""
    return [RuleTally(replace(rule, detector=ServiceFindings({})), clock) for rule in rules]


def seen(views: Iterable[View], kind: str, role: str | None) -> list[Reading]:
    """Return the readings of one text that services get."""
    return [Reading(view.cased, kind, role) for view in views]


@dataclass(frozen=True, slots=True)
class TextCollector:
    """Hears the texts of one kind in a stream, when each is whole."""

    kind: str
    heard: list[Reading]
    reach: int | None = None

    def find(self, text: str) -> Sequence[Finding]:
        self.heard.append(Reading(text, self.kind, "assistant"))
        return ()


class ServiceStage:
    """A stream as other guards leave it, of which services are asked when all of it is there.

    Where one of them enforces, nothing is shown before; else all but the end of the stream is.
    """

    __slots__ = (
        "_ask", "_beside", "_clock", "_ears", "_heard", "_kept", "_most_texts", "_replace",
        "_tallies", "holds",
    )  # fmt: skip

    def __init__(
        self,
        rules: Sequence[GuardRule],
        clock: Clock,
        ask: Callable[[Iterable[Reading]], Awaitable[list[RuleTally]]],
        replace: Replace,
        beside: Beside,
        most_texts: int = MOST_TEXTS,
    ) -> None:
        self._ask = ask
        self._most_texts = most_texts
        self._beside = beside
        self._clock = clock
        self._replace = replace
        self.holds = any(rule.enforces for rule in rules)
        self._kept: list[Chunk] = []
        self._heard: list[Reading] = []
        self._tallies = unasked(rules, clock)
        kinds = [kind for kind in sorted(KINDS) if _any_applies(rules, kind)]
        hearing = (_ear(kind, rules, self._heard) for kind in kinds)
        ears = [RuleTally(rule, clock, most_texts=most_texts) for rule in hearing]
        self._ears = Feeding(StreamFilter.under(ears, to_last=True), beside)

    def results(self) -> list[GuardResult]:
        return [tally.result() for tally in self._tallies]

    async def feed(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Take the next chunks, return those that may be shown. Raises ``GuardBlocked``."""
        await self._ears.feed_all(chunks, self._clock)
        self._kept += chunks
        ended = bool(chunks) and chunks[-1].last
        safe = await self._ended() if ended else []
        return safe if self.holds else chunks

    async def _ended(self) -> list[Chunk]:
        self._tallies = await self._ask(self._heard)
        for tally in self._tallies:
            tally.opaque = self._ears.opaque
            tally.most_texts = self._most_texts
        deltas = StreamFilter.under(self._tallies, self._replace, to_last=True)
        return await Feeding(deltas, self._beside).feed_all(self._kept, self._clock)


def _any_applies(rules: Iterable[GuardRule], kind: str) -> bool:
    return any(rule.applies("assistant", kind) for rule in rules)


def _ear(kind: str, rules: Sequence[GuardRule], heard: list[Reading]) -> GuardRule:
    """Return the rule that hears what the others will look at: what is left out for one that acts
    is left out for it."""
    acts = _any_applies((rule for rule in rules if rule.enforces), kind)
    action: Action = "mask" if acts else "flag"
    return GuardRule(
        "ear", TextCollector(kind, heard), action, fields=frozenset({kind}), cased=True
    )
