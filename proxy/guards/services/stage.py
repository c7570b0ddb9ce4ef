"""Runs the guards that call a service.

Services run after all local guards: they receive masked text, and are not called for a blocked
call. The findings of a service become a detector of the texts that it received, so that they are
applied like the findings of other guards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from proxy.call.record import Record
from proxy.errors import ProxyError
from proxy.guards.findings import Clock, FailedDetector, RuleTally
from proxy.guards.services.wire import TooLong, Unsure
from proxy.guards.stream.filter import JobRunner, StreamFilter
from proxy.guards.text.walk import TEXT_KINDS, Text
from proxy.ports import GuardClients
from proxy.runtime.frozen import frozen
from proxy.types.events import Frame
from proxy.types.guard import (
    Action,
    Finding,
    GuardClient,
    GuardResult,
    GuardRule,
    PromptContext,
    is_service,
)

REQUEST_ERRORS = frozenset({400, 413, 422})  # statuses that do not mean an unavailable service


@frozen
class NoGuardClients:
    """``GuardClients`` that refuse all requests, for commands that open no connections."""

    request_id: str = ""
    caller: object = None

    def build_guard_client(self, record: Record, *, call_waits: bool = True) -> GuardClient:
        return self

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        raise OSError("this command does not call guard services")

    async def complete(self, guard: str, deployment: str, body: Mapping[str, object]) -> str:
        raise OSError("this command does not call guard services")


@frozen
class ServiceFindings:
    """Detector that returns the findings of a service.

    Raises ``KeyError`` for texts it did not receive.
    """

    findings: Mapping[str, Sequence[Finding]]
    lookback: int | None = None

    def find(self, text: str) -> Sequence[Finding]:
        return self.findings[text]


class MismatchedAnswer(Exception):
    """The response of a service does not match the texts that were sent."""


@frozen
class ServiceCaller:
    """Calls the guard services for one call. ``now`` measures the time of each service."""

    prompt: PromptContext
    record: Record
    clients: GuardClients
    clock: Clock
    now: Clock

    async def call_all(self, rules: Sequence[GuardRule], texts: Iterable[Text]) -> list[RuleTally]:
        """Call all services concurrently, each with the texts of its rule and its deadline.

        A failed service is replaced by a detector that raises the error.
        """
        distinct_texts = [*dict.fromkeys(texts)]
        call_waits = any(rule.enforces for rule in rules)
        client = self.clients.build_guard_client(self.record, call_waits=call_waits)
        async with asyncio.TaskGroup() as group:
            call = partial(self._call_service, distinct_texts, client)
            jobs = [group.create_task(call(rule)) for rule in rules]
        return [job.result() for job in jobs]

    async def _call_service(
        self, texts: Sequence[Text], client: GuardClient, rule: GuardRule
    ) -> RuleTally:
        applicable = [text for text in texts if rule.applies_to(text.role, text.kind)]
        service = rule.detector
        if not applicable or not is_service(service):
            return build_uncalled_tallies([rule], self.clock)[0]
        started_at = self.now()
        detector: ServiceFindings | FailedDetector
        is_service_unavailable = False
        try:
            async with asyncio.timeout(rule.deadline_s):
                findings = await service.find_all(applicable, self.prompt, client)
                detector = ServiceFindings(_group_by_text(applicable, findings))
        except Exception as error:  # noqa: BLE001  # any error is a failure of the guard
            detector = FailedDetector(error, lookback=None)
            if isinstance(error, ProxyError):  # an error of the guard's deployment
                is_service_unavailable = error.status not in REQUEST_ERRORS
            else:
                is_service_unavailable = not isinstance(error, TooLong | Unsure)
        tally = RuleTally(replace(rule, detector=detector), self.clock)
        tally.is_service_unavailable = is_service_unavailable
        tally.wait_s = self.now() - started_at
        return tally


def _group_by_text(
    texts: Sequence[Text], answers: Sequence[Sequence[Finding]]
) -> Mapping[str, Sequence[Finding]]:
    """Return the findings by text. Raise ``MismatchedAnswer`` if they do not fit the texts."""
    if len(answers) != len(texts):
        raise MismatchedAnswer
    findings_by_text: dict[str, list[Finding]] = {}
    for text, findings in zip(texts, answers, strict=True):
        if any(not 0 <= finding.start <= finding.end <= len(text.text) for finding in findings):
            raise MismatchedAnswer
        findings_by_text.setdefault(text.text, []).extend(findings)
    return findings_by_text


def build_uncalled_tallies(
    rules: Iterable[GuardRule], clock: Clock, error_code: str | None = None
) -> list[RuleTally]:
    """Return the tallies of services that were not called.

    ``error_code`` is the reason, None if there were no texts.
    """
    uncalled = [replace(rule, detector=ServiceFindings({})) for rule in rules]
    return [RuleTally(rule, clock, error=error_code) for rule in uncalled]


@frozen
class TextCollector:
    """Detector that finds nothing, and collects the complete texts of one kind in a stream."""

    kind: str
    collected_texts: list[Text]
    lookback: int | None = None

    def find(self, text: str) -> Sequence[Finding]:
        self.collected_texts.append(Text((), text, self.kind, role="assistant"))
        return ()


class StreamServiceInspector:
    """Calls services at the end of a stream, after the other guards.

    If a service enforces, the stream is withheld until all services have responded. Otherwise it is
    sent at once, and the services are called in the background. ``run_job`` runs heavy inspections.
    """

    def __init__(
        self, rules: Sequence[GuardRule], calls: ServiceCaller, run_job: JobRunner, max_texts: int
    ) -> None:
        self._calls = calls
        self._rules = rules
        self._max_texts = max_texts
        self._run_job = run_job
        self.holds_frames = any(rule.enforces for rule in rules)
        self._frames: list[Frame] = []
        self._texts: list[Text] = []
        self._tallies = build_uncalled_tallies(rules, calls.clock)
        kinds = [kind for kind in sorted(TEXT_KINDS) if _has_rule_for_kind(rules, kind)]
        collectors = (_build_collecting_rule(kind, rules, self._texts) for kind in kinds)
        tallies = [RuleTally(rule, calls.clock, max_texts=max_texts) for rule in collectors]
        self._collecting = StreamFilter.for_rules(
            tallies, run_job=run_job, texts_continue_after_finish=True
        )

    def get_results(self) -> list[GuardResult]:
        return [tally.to_result() for tally in self._tallies]

    async def inspect(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        """Return the frames that may be sent. Raises ``GuardBlocked``."""
        await self._collecting.inspect_all(frames, self._calls.clock)
        self._frames += frames
        ended = bool(frames) and frames[-1].last
        if self.holds_frames:
            return await self._call_services() if ended else []
        if ended:
            await self._calls.record.run_in_background(self._call_services, self._record_uncalled)
        return frames

    def _record_uncalled(self, error_code: str) -> None:
        self._tallies = build_uncalled_tallies(self._rules, self._calls.clock, error_code)

    async def _call_services(self) -> Sequence[Frame]:
        self._tallies = await self._calls.call_all(self._rules, self._texts)
        for tally in self._tallies:
            tally.opaque = self._collecting.opaque
            tally.max_texts = self._max_texts
        frames = StreamFilter.for_rules(
            self._tallies, run_job=self._run_job, texts_continue_after_finish=True
        )
        return await frames.inspect_all(self._frames, self._calls.clock)


def _has_rule_for_kind(rules: Iterable[GuardRule], kind: str) -> bool:
    return any(rule.applies_to("assistant", kind) for rule in rules)


def _build_collecting_rule(
    kind: str, rules: Sequence[GuardRule], collected_texts: list[Text]
) -> GuardRule:
    """Return a rule that appends each text to ``collected_texts`` and finds nothing.

    It enforces if one of the rules does, so that it inspects the same texts.
    """
    acts = _has_rule_for_kind((rule for rule in rules if rule.enforces), kind)
    action: Action = "mask" if acts else "flag"
    collector, kinds = TextCollector(kind, collected_texts), frozenset({kind})
    return GuardRule("ear", collector, action, fields=kinds, cased=True)
