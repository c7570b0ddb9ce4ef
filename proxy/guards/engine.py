"""Runs the rules of one call on texts.

Every rule inspects every text that it applies to, and has a result even if an earlier rule has
already blocked the call. Detectors that judge texts by the prompt are bound to the request, in any
API format, first. Missing members and members without a text count as empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import field
from dataclasses import replace as copied
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from proxy.call.record import Record
from proxy.errors import GuardBlocked
from proxy.guards import findings
from proxy.guards.guard_threads import GuardThreads, ignore_wait_time
from proxy.guards.services.stage import NoGuardClients, ServiceCaller, build_uncalled_tallies
from proxy.guards.text import documents
from proxy.guards.text.walk import Path, Text, Texts, WalkItem
from proxy.guards.whole.joined_parts import iter_joined_message_parts, iter_joined_texts
from proxy.guards.whole.prefilter import prefilter_rules
from proxy.guards.whole.text_batches import (
    RuleInspection,
    build_text_views,
    inspect_in_threads,
    split_into_batches,
)
from proxy.ports import GuardClients
from proxy.runtime.fair_queue import LARGE_BYTES, FairSemaphore
from proxy.runtime.frozen import frozen
from proxy.types import Json
from proxy.types.guard import (
    GuardResult,
    GuardRule,
    PromptContext,
    StageRules,
    has_context_chars,
    is_contextual,
)

MAX_LOOP_WEIGHT = 16 * 1024  # texts of a call with at least this weight are inspected in threads
MAX_PREFILTER_WEIGHT = 256 * 1024  # weight of texts that a thread prefilters in one batch
VALUES_PER_TURN = 8 * 1024  # values that a thread reads in one turn
MAX_WAIT_S = 10.0
CONCURRENT_BATCHES = 2  # batches of texts that all calls inspect in threads at a time

T = TypeVar("T")
_SYSTEM_ROLES = frozenset({"system", "developer"})


@frozen
class Inspection:
    """Findings of rules in texts.

    ``changes`` are the masked texts by their paths; ``routing_rule`` is the rule that routes the
    call.
    """

    results: tuple[GuardResult, ...]
    changes: dict[Path, str]
    blocked: GuardBlocked | None = None
    routing_rule: GuardRule | None = None


@frozen
class Engine:
    """Runs guard rules on texts. Rules with a contextual detector must be bound to the call first.

    - ``clock`` measures the CPU time of a thread, for the deadlines of rules.
    - ``pool`` runs inspections above ``max_loop_weight``, in ``slots`` of the callers. Without a
      pool, all inspections run on the event loop.
    - ``max_texts`` bounds the texts within the arguments of one document.
    - ``max_wait_s`` bounds the wait of a call for slots. ``on_wait`` gets the seconds of each wait.
    - ``now`` measures the time of services, by default like ``clock``.
    """

    clock: findings.Clock
    pool: Executor | None = None
    max_loop_weight: int = MAX_LOOP_WEIGHT
    guard_clients: GuardClients = NoGuardClients()  # immutable
    max_texts: int = documents.MAX_TEXTS
    slots: FairSemaphore = field(default_factory=partial(FairSemaphore, CONCURRENT_BATCHES))
    max_wait_s: float = MAX_WAIT_S
    on_wait: Callable[[float], None] = ignore_wait_time
    now: findings.Clock | None = None

    async def inspect(
        self,
        rules: Sequence[GuardRule],
        texts: Texts | Sequence[Text],
        replace: findings.Replace = findings.replace_by_kind,
        caller: object = None,
    ) -> Inspection:
        """Inspect whole texts, taking turns with other callers. Return a block, do not raise it."""
        walked_texts = texts if isinstance(texts, Texts) else Texts(tuple(texts))
        prefiltered = prefilter_rules(rules, walked_texts, self.max_loop_weight, self.clock)
        if not any(prefiltered) and self._is_heavy((), walked_texts):
            prefiltered = await self._prefilter_in_thread(rules, walked_texts, caller)
        pairs = zip(rules, prefiltered, strict=True)
        remaining = [rule for rule, result in pairs if result is None]
        inspection = Inspection((), {})
        if remaining:
            inspect = self._inspect_without_prefilter
            inspection = await inspect(remaining, walked_texts, replace, caller)
        results = iter(inspection.results)
        merged = [next(results) if result is None else result for result in prefiltered]
        return copied(inspection, results=tuple(merged))

    async def _prefilter_in_thread(
        self, rules: Sequence[GuardRule], walked_texts: Texts, caller: object
    ) -> Sequence[GuardResult | None]:
        """Prefilter heavy texts in a thread. After ``max_wait_s``, all rules must inspect them."""
        job = partial(prefilter_rules, rules, walked_texts, MAX_PREFILTER_WEIGHT, self.clock)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.max_wait_s):
                return await self.get_threads(caller)(job)
        return [None] * len(rules)

    async def _inspect_without_prefilter(
        self,
        rules: Sequence[GuardRule],
        walked_texts: Texts,
        replace: findings.Replace,
        caller: object,
    ) -> Inspection:
        opaque = bool(walked_texts.opaque)
        tallies = [findings.RuleTally(rule, self.clock, opaque=opaque) for rule in rules]
        texts = walked_texts.texts
        if walked_texts.incomplete_reason is not None:
            return _fail_all_rules(tallies, walked_texts.incomplete_reason, texts, replace)
        if not self._is_heavy(rules, walked_texts):
            return inspect_now(tallies, texts, replace)
        threads = self.get_threads(caller)
        inspections = await inspect_in_threads(threads, self.clock, tallies, texts, self.max_wait_s)
        conclude = partial(_build_inspection, inspections, texts, replace)
        # Only masking takes long, so a blocked call does not wait for another turn.
        masks = any(map(_must_mask, inspections)) and _find_first_block(inspections) is None
        return await threads(conclude) if masks else conclude()

    def _is_heavy(self, rules: Sequence[GuardRule], walked_texts: Texts) -> bool:
        """Return True if the texts are too much work for the event loop.

        If there are many texts, they are not weighed one by one.
        """
        if self.pool is None:
            return False
        if documents.TEXT_WEIGHT * len(walked_texts.texts) > self.max_loop_weight:
            return True
        remaining = self.max_loop_weight - _estimate_inspection_weight(rules, walked_texts.texts)
        if remaining < 0 or walked_texts.has_no_joined_texts:
            return remaining < 0
        # Short messages of one role are joined twice, with a space between them and without.
        joined = iter_joined_texts(walked_texts.texts)
        return sum(documents.estimate_weight(item.text.text) for item in joined) > remaining

    async def run_or_offload(self, weight: int, job: Callable[[], T], caller: object) -> T:
        """Run a job, in a thread if its weight is large."""
        return job() if weight <= self.max_loop_weight else await self.get_threads(caller)(job)

    def get_threads(self, caller: object) -> GuardThreads:
        return GuardThreads(self.pool, self.slots.make_slot(caller), self.on_wait)

    async def read_texts(
        self,
        walk: Callable[[Json], Iterator[WalkItem]],
        data: Json,
        size: int,
        caller: object = None,
    ) -> Texts:
        """Return the texts of a document of ``size`` bytes.

        A thread reads a large document, because one text may be megabytes of base64.
        """
        if self.pool is None or size <= LARGE_BYTES:
            read_plain = documents.PLAIN_READERS.get(walk)
            plain = read_plain(data) if read_plain else None
            return plain or await documents.collect_texts_in_steps(walk(data), self.max_texts)
        walker = documents.WalkCollector(walk(data), self.max_texts)
        threads = self.get_threads(caller)
        is_unfinished = True
        while is_unfinished:  # each step takes a turn, and a canceled call takes no more
            is_unfinished = await threads(partial(walker.advance_and_check_more, VALUES_PER_TURN))
        return walker.texts

    async def ask_services(
        self,
        rules: Sequence[GuardRule],
        walked_texts: Texts,
        calls: ServiceCaller,
        replace: findings.Replace = findings.replace_by_kind,
        caller: object = None,
    ) -> Inspection:
        """Inspect whole texts as ``inspect`` does, for rules that call services."""
        texts = walked_texts.texts
        if walked_texts.incomplete_reason is not None:
            uncalled = build_uncalled_tallies(rules, self.clock)
            return _fail_all_rules(uncalled, walked_texts.incomplete_reason, texts, replace)

        def collect() -> list[Text]:
            views = [
                (build_text_views(index, text).views, text)
                for index, text in enumerate(texts)
                if not text.in_data_member
            ]
            joined_texts = (item for item in iter_joined_message_parts(texts) if item.text.join_key)
            views += [(joined.build_views(), joined.text) for joined in joined_texts]
            return [
                Text((), view.cased, text.kind, role=text.role)
                for readings, text in views
                for view in readings
                if not view.is_escaped_form
            ]

        weight = _estimate_inspection_weight((), texts)
        tallies = await calls.call_all(rules, await self.run_or_offload(weight, collect, caller))
        for tally in tallies:
            tally.opaque = bool(walked_texts.opaque)
        inspect = partial(inspect_now, tallies, texts, replace)
        return await self.run_or_offload(weight, inspect, caller)

    def build_service_caller(self, body: Json, record: Record) -> ServiceCaller:
        """Return the caller of guard services for one call, whose request is ``body``."""
        return ServiceCaller(
            prompt=build_prompt_context(body),
            record=record,
            clients=self.guard_clients,
            clock=self.clock,
            now=self.now or self.clock,
        )

    def build_uncalled_results(
        self, services: Sequence[GuardRule], failure_code: str | None = None
    ) -> list[GuardResult]:
        """Return results of services that were not called, because of a block or a failure."""
        tallies = build_uncalled_tallies(services, self.clock, failure_code)
        return [tally.to_result() for tally in tallies]


def _estimate_inspection_weight(rules: Sequence[GuardRule], texts: Sequence[Text]) -> int:
    """Return the weight of texts, and of the contexts that detectors read in addition."""
    detectors = (rule.detector for rule in rules)
    contexts = sum(detector.context_chars for detector in detectors if has_context_chars(detector))
    weights = [documents.estimate_weight(text.text) for text in texts]
    return contexts + documents.TEXT_WEIGHT * len(texts) + sum(weights)


def inspect_now(
    tallies: Sequence[findings.RuleTally], texts: Sequence[Text], replace: findings.Replace
) -> Inspection:
    """Inspect whole texts on the calling thread, without yielding to the event loop."""
    inspections = [RuleInspection(tally, number) for number, tally in enumerate(tallies)]
    for batch in split_into_batches(texts, inspections):
        for inspection in inspections:
            if not inspection.has_failed:
                inspection.inspect(batch)
    return _build_inspection(inspections, texts, replace)


def _fail_all_rules(
    tallies: Sequence[findings.RuleTally],
    failure_code: str,
    texts: Sequence[Text],
    replace: findings.Replace,
) -> Inspection:
    """Return an inspection in which every rule failed, because texts could not be read."""
    inspections = [RuleInspection(tally, number) for number, tally in enumerate(tallies)]
    for inspection in inspections:
        inspection.record_failure(failure_code)
    return _build_inspection(inspections, texts, replace)


def _build_inspection(
    inspections: Sequence[RuleInspection], texts: Sequence[Text], replace: findings.Replace
) -> Inspection:
    """Return the results and the masked texts of finished inspections."""
    rules = [inspection.tally.rule for inspection in inspections]
    blocked = _find_first_block(inspections)
    by_text: dict[int, list[findings.TextMatch]] = {}
    for inspection in inspections if blocked is None else ():
        if _must_mask(inspection):
            for place, match in inspection.matches:
                by_text.setdefault(place, []).append(match)
    changes: dict[Path, str] = {}
    for place, matches in by_text.items():
        text = texts[place]
        written = findings.make_json_string_replace(replace) if text.in_json else replace
        ordered = sorted(matches, key=attrgetter("sort_key"))
        changes[text.path] = findings.apply_masks(text.text, ordered, rules, written)
    found = [each.tally.rule for each in inspections if each.matches and each.tally.error is None]
    routing = (rule for rule in found if rule.action == "route" and rule.enforces)
    return Inspection(
        results=tuple(inspection.tally.to_result() for inspection in inspections),
        changes=changes,
        blocked=blocked,
        routing_rule=next(routing, None),
    )


def _must_mask(inspection: RuleInspection) -> bool:
    tally = inspection.tally
    return bool(inspection.matches) and tally.rule.can_mask and tally.error is None


def _find_first_block(inspections: Sequence[RuleInspection]) -> GuardBlocked | None:
    """Return the error of the first rule that blocks, for a finding or a failure."""
    for inspection in inspections:
        if inspection.failure is not None:
            return inspection.failure
        tally = inspection.tally
        if tally.rule.can_block and inspection.matches and tally.error is None:
            return tally.record_block(inspection.matches[0][1].kind)
    return None


def bind_to_prompt(rules: StageRules, body: Json) -> StageRules:
    """Return the rules with detectors made for the request ``body``; services stay as they are.

    A rule applies to no text if the request lacks the context that its detector needs.
    """
    if not rules.contextual:
        return rules
    context = build_prompt_context(body)
    return StageRules.from_rules(tuple(_bind_rule(rule, context) for rule in rules.all_rules))


def split_by_enforcement(rules: Sequence[GuardRule]) -> tuple[list[GuardRule], list[GuardRule]]:
    """Return the rules that enforce, and those that only record findings."""
    return [rule for rule in rules if rule.enforces], [rule for rule in rules if not rule.enforces]


def _bind_rule(rule: GuardRule, context: PromptContext) -> GuardRule:
    if not is_contextual(rule.detector):
        return rule
    try:
        detector = rule.detector.for_prompt(context)
    except Exception as error:  # noqa: BLE001  # a broken guard must not pass texts
        detector = findings.FailedDetector(error)
    if detector is None:
        return copied(rule, detector=findings.FailedDetector(LookupError()), fields=frozenset())
    return copied(rule, detector=detector)


def build_prompt_context(body: Json) -> PromptContext:
    """Return the system prompt, the last user message and the declared context of a request."""
    slots = body["messages"] if "messages" in body else body.get("input")
    messages = [message for message in _as_list_or_empty(slots) if isinstance(message, dict)]
    system = [_get_content_text(body.get(name)) for name in ("instructions", "system")]
    prompts: list[str] = []
    for message in messages:
        if message.get("role") in _SYSTEM_ROLES:
            system.append(_get_content_text(message.get("content")))
        elif message.get("role") == "user":
            prompts.append(_get_content_text(message.get("content")))
    prompts = prompts or [_get_content_text(body.get("prompt", body.get("input")))]
    context = _get_content_text(body.get("context", body.get("enkrypt_context")))
    return PromptContext(_join_nonempty_lines(system), prompts[-1], context)


def _get_content_text(value: Any) -> str:
    """Return the text of a string, or of a list of strings and of parts with a text."""
    if isinstance(value, str):
        return value
    items = _as_list_or_empty(value)
    parts = (item.get("text") if isinstance(item, dict) else item for item in items)
    return _join_nonempty_lines(part for part in parts if isinstance(part, str))


def _join_nonempty_lines(texts: Iterable[str]) -> str:
    return "\n".join(text for text in texts if text)


def _as_list_or_empty(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
