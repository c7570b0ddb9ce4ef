"""Guards that ask a service: which texts it gets, and how its findings are applied.

A service gets texts as the guards with a detector of their own leave them: what those mask does not
leave the process, and a call that they stop is not sent. The findings of a service then become a
detector of the very texts it was sent, so that all else is as for any other guard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from proxy.errors import ProxyError
from proxy.frozen import frozen
from proxy.guardrails.context import FailedDetector
from proxy.guardrails.findings.mask import Replace
from proxy.guardrails.findings.tally import Clock, RuleTally
from proxy.guardrails.services.wire import TooLong, Unsure
from proxy.guardrails.stream.frame_feeding import Feeds
from proxy.guardrails.stream.text_filters import RuleFilters
from proxy.guardrails.text.normalize import View
from proxy.guardrails.text.walk import KINDS
from proxy.ports import Egress
from proxy.record import Record
from proxy.types import AnswerPiece
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

OF_REQUEST = frozenset({400, 413, 422})


@frozen
class NoEgress:
    """The egress of a process without one."""

    request_id: str = ""
    caller: object = None

    def of(self, record: Record, *, waits: bool = True) -> GuardEgress:
        return self

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        raise OSError("no way out")

    async def complete(self, guard: str, deployment: str, body: Mapping[str, object]) -> str:
        raise OSError("no way out")


@frozen
class Reading:
    """One reading of a text, as a service sees it."""

    text: str
    kind: str
    role: str | None


@frozen
class ServiceFindings:
    """The findings of a service, as the detector of the texts it was sent. It raises ``KeyError``
    for any other text."""

    findings: Mapping[str, Sequence[Finding]]
    reach: int | None = None

    def find(self, text: str) -> Sequence[Finding]:
        return self.findings[text]


class Unfit(Exception):
    """The answer of a service does not fit the texts it was sent."""


@frozen
class ServiceCalls:
    """Calls the services of one call; ``question`` is what they may know of it. ``now`` is the
    clock of what they take."""

    question: Question
    record: Record
    outsides: Egress
    clock: Clock
    now: Clock

    async def tallies(
        self, rules: Sequence[GuardRule], reads: Iterable[Reading]
    ) -> list[RuleTally]:
        """Ask all services at once, each about the texts that its rule applies to and until its
        deadline. One that cannot tell becomes a detector that raises what it has raised."""
        readings = [*dict.fromkeys(reads)]
        waits = any(rule.enforces for rule in rules)
        outside = self.outsides.of(self.record, waits=waits)
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(self._call(rule, readings, outside)) for rule in rules]
        return [job.result() for job in jobs]

    async def _call(
        self, rule: GuardRule, reads: Sequence[Reading], outside: GuardEgress
    ) -> RuleTally:
        applicable = [read for read in reads if rule.applies(read.role, read.kind)]
        service = rule.detector
        if not applicable or not is_service(service):
            return unasked([rule], self.clock)[0]
        began = self.now()
        try:
            async with asyncio.timeout(rule.deadline_s):
                findings = await self._asked(service, applicable, outside)
            detector: ServiceFindings | FailedDetector = ServiceFindings(findings)
            is_away = False
        except Exception as error:  # noqa: BLE001  # what it raises means that it could not tell
            detector = FailedDetector(error, reach=None)
            is_away = not _is_of_text(error)
        tally = RuleTally(replace(rule, detector=detector), self.clock, is_away=is_away)
        tally.waited = self.now() - began
        return tally

    async def _asked(
        self, service: Service, applicable: Sequence[Reading], outside: GuardEgress
    ) -> Mapping[str, Sequence[Finding]]:
        pieces: Sequence[Piece] = applicable
        answers = await service.ask(pieces, self.question, outside)
        found: dict[str, list[Finding]] = {}
        if len(answers) != len(applicable):
            raise Unfit
        for read, findings in zip(applicable, answers, strict=True):
            if any(not 0 <= each.start <= each.end <= len(read.text) for each in findings):
                raise Unfit
            found.setdefault(read.text, []).extend(findings)
        return found


def _is_of_text(error: Exception) -> bool:
    """Return True if a service could not tell because of the text that it was sent."""
    if isinstance(error, ProxyError):  # of the deployment that a guard calls
        return error.status in OF_REQUEST
    return isinstance(error, TooLong | Unsure)


def unasked(rules: Iterable[GuardRule], clock: Clock, error: str | None = None) -> list[RuleTally]:
    """Return the tallies of services that were asked nothing, maybe because of an error."""
    return [
        RuleTally(replace(rule, detector=ServiceFindings({})), clock, error=error) for rule in rules
    ]


def seen(views: Iterable[View], kind: str, role: str | None) -> list[Reading]:
    """Return the readings of one text that services get."""
    return [Reading(view.cased, kind, role) for view in views if not view.written]


@frozen
class TextCollector:
    """Collects the texts of one kind in a stream, each when it is whole."""

    kind: str
    collected: list[Reading]
    reach: int | None = None

    def find(self, text: str) -> Sequence[Finding]:
        self.collected.append(Reading(text, self.kind, "assistant"))
        return ()


class ServiceStage:
    """A stream, as other guards leave it, whose services are called when all of it has come.
    `feeding` makes what feeds it to filters.

    If they enforce, nothing is shown before that; else all is shown, and they are called beside the
    call.
    """

    __slots__ = (
        "_calls",
        "_collected",
        "_collecting",
        "_feeding",
        "_kept",
        "_most_texts",
        "_replace",
        "_rules",
        "_tallies",
        "holds",
    )  # fmt: skip

    def __init__(
        self,
        rules: Sequence[GuardRule],
        calls: ServiceCalls,
        replace: Replace,
        feeding: Callable[[RuleFilters], Feeds],
        most_texts: int,
    ) -> None:
        clock = calls.clock
        self._calls = calls
        self._rules = rules
        self._most_texts = most_texts
        self._feeding = feeding
        self._replace = replace
        self.holds = any(rule.enforces for rule in rules)
        self._kept: list[AnswerPiece] = []
        self._collected: list[Reading] = []
        self._tallies = unasked(rules, clock)
        kinds = [kind for kind in sorted(KINDS) if _any_applies(rules, kind)]
        collectors = (_collector(kind, rules, self._collected) for kind in kinds)
        tallies = [RuleTally(rule, clock, most_texts=most_texts) for rule in collectors]
        self._collecting = feeding(RuleFilters(tallies, to_last=True))

    def results(self) -> list[GuardResult]:
        return [tally.result() for tally in self._tallies]

    async def feed(self, chunks: Sequence[AnswerPiece]) -> Sequence[AnswerPiece]:
        """Take the next chunks, return those that may be shown. Raises ``GuardBlocked``."""
        await self._collecting.feed_all(chunks, self._calls.clock)
        self._kept += chunks
        ended = bool(chunks) and chunks[-1].last
        if self.holds:
            return await self._ended() if ended else []
        if ended:
            await self._calls.record.run_beside(self._watch, self._fail)
        return chunks

    async def _watch(self) -> None:
        await self._ended()

    def _fail(self, error: str) -> None:
        """Note that the services, none of which enforces, could not tell."""
        self._tallies = unasked(self._rules, self._calls.clock, error)

    async def _ended(self) -> Sequence[AnswerPiece]:
        self._tallies = await self._calls.tallies(self._rules, self._collected)
        for tally in self._tallies:
            tally.opaque = self._collecting.opaque
            tally.most_texts = self._most_texts
        feeding = self._feeding(RuleFilters(self._tallies, self._replace, to_last=True))
        return await feeding.feed_all(self._kept, self._calls.clock)


def _any_applies(rules: Iterable[GuardRule], kind: str) -> bool:
    return any(rule.applies("assistant", kind) for rule in rules)


def _collector(kind: str, rules: Sequence[GuardRule], collected: list[Reading]) -> GuardRule:
    """Return the rule that collects the texts of the others. It leaves out what is left out for a
    rule that acts."""
    acts = _any_applies((rule for rule in rules if rule.enforces), kind)
    action: Action = "mask" if acts else "flag"
    return GuardRule(
        "ear", TextCollector(kind, collected), action, fields=frozenset({kind}), cased=True
    )
