"""Inspection of whole documents, requests and answers, by the rules of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from proxy.call.record import Record
from proxy.guards.context import bound, split_enforcing
from proxy.guards.engine import Engine, Inspection
from proxy.guards.findings.mask import Replace, named
from proxy.guards.services.stage import ServiceCalls
from proxy.guards.text.native import is_native, native_walk
from proxy.guards.text.plain_chat import plain_answer
from proxy.guards.text.replace import replaced
from proxy.guards.text.text_walker import EACH
from proxy.guards.text.walk import Found, Texts, answer_walk
from proxy.guards.whole.prefilter import prefilter_rules
from proxy.guards.whole_answers import document_of, shown_texts, with_document
from proxy.types import Call, Json
from proxy.types.events import Frame
from proxy.types.guard import GuardResult, GuardRule, Stage, StageRules

Walk = Callable[[Json], Iterator[Found]]
Known = Sequence[GuardResult | None]
"""Result of each rule by the prefilter; None if it must inspect the texts."""
NOTHING_KNOWN: Known = ()
NOTHING_SEEN = None, None, NOTHING_KNOWN


@dataclass(slots=True)
class WholeInspector:
    """Where whole documents of one call are looked at, question or answers. ``routed`` is the first
    rule that says where the call goes; ``size`` is that of the question in bytes. `frame` has the
    events of an answer."""

    engine: Engine
    record: Record
    stage: Stage
    walk: Walk
    replacement: Replace = named
    size: int = 0
    routed: GuardRule | None = None
    frame: Frame | None = None

    async def inspect(
        self,
        rules: StageRules,
        data: Json,
        asked: Json | None = None,
        read: Texts | None = None,
        known: Known = NOTHING_KNOWN,
    ) -> Json:
        """Return a document as its rules leave it: first those that look by themselves, then those
        that ask somebody else. ``asked`` is the question where the document is not; ``read`` are
        the document's texts where they are read already, and ``known`` is the results of the
        prefilter."""
        own, services = bound(rules, asked or data)
        caller = self.record.key
        read = read or await self._read(data)
        if own:
            looked = await self.engine.inspect(own, read, self.replacement, caller, known)
            self.record.add_guard_results(self.stage, looked.results)
            if looked.blocked is not None:
                self.record.add_guard_results(self.stage, self.engine.unasked(services))
            safe = await self._allowed(looked, data)
            if safe is not data and services:
                read = await self._read(safe)
            data = safe
        if services:
            enforcing, watching = split_enforcing(services)
            inquiry = self.engine.inquiry(asked or data, self.record)
            if watching:
                watch = partial(self._ask, watching, read, inquiry)
                await self.record.run_in_background(watch, partial(self._fail, watching))
            if enforcing:
                data = await self._allowed(await self._ask(enforcing, read, inquiry), data)
        return data

    async def _read(self, data: Json) -> Texts:
        read = await self.engine.read(self.walk, data, self.size, self.record.key)
        return read if self.frame is None else shown_texts(read, self.frame)

    async def _ask(
        self, services: Sequence[GuardRule], read: Texts, inquiry: ServiceCalls
    ) -> Inspection:
        """Ask services of texts, and record what they find."""
        caller = self.record.key
        inspection = await self.engine.ask(services, read, inquiry, self.replacement, caller)
        self.record.add_guard_results(self.stage, inspection.results)
        return inspection

    def _fail(self, services: Sequence[GuardRule], error: str) -> None:
        self.record.add_guard_results(self.stage, self.engine.unasked(services, error))

    async def _allowed(self, inspection: Inspection, data: Json) -> Json:
        """Return a document with the changes of an inspection. Raises ``GuardBlocked``."""
        inspection.permit()
        self.routed = self.routed or inspection.routed
        changes = inspection.changes
        if not changes:
            return data
        job = partial(replaced, data, changes)
        return await self.engine.aside(EACH * len(changes), job, self.record.key)


@dataclass(slots=True)
class WholeAnswer:
    """An answer of one document for each leg: each is looked at as a whole. What says why a leg
    failed was reviewed as an error."""

    engine: Engine
    record: Record
    rules: StageRules
    call: Call
    walk: Walk = answer_walk
    _seen: tuple[Json, Texts, Known] | None = None  # a document that was not clean by the prefilter

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        """Return a frame that is clean by the prefilter, as nearly all are; None for any other."""
        data = document_of(frame)
        if data is None:
            return (frame,)
        is_usual = self.rules.alone and not is_native(frame.family)
        read = plain_answer(data) if is_usual else None
        if read is None:
            return None
        known = prefilter_rules(self.rules.every, read, self.engine.above, self.engine.clock)
        if None in known:
            self._seen = data, read, known
            return None
        self.record.guards += [("output", each) for each in known if each is not None]
        return (frame,)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        """Return a frame as the rules leave it. What ``try_inspect`` has found is not read
        again."""
        before = document_of(frame)
        if before is None:
            return (frame,)
        seen, self._seen = self._seen, None
        _, read, known = seen if seen and seen[0] is before else NOTHING_SEEN
        walk = self.walk
        if is_native(frame.family):
            walk = partial(native_walk, family=frame.family, cut=False)
        inspector = WholeInspector(
            engine=self.engine,
            record=self.record,
            stage="output",
            walk=walk,
            frame=frame,
        )
        data = await inspector.inspect(self.rules, before, self.call.body, read=read, known=known)
        return (frame if data is before else with_document(frame, data, self.call),)
