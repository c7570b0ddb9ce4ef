"""Inspection of texts, in and out: what a policy does not let pass, shows masked, or only notes.

Every text of a question and of an answer is looked at, in every dialect, streamed or whole: see
``texts``. What cannot be read is refused while a guard is in force, unless the policy lets it pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from proxy.errors import GuardBlocked
from proxy.guardrails.capture import Capturing, redacting
from proxy.guardrails.engine import Engine, Inspection
from proxy.guardrails.question import bound, parted
from proxy.guardrails.replacing import replaced
from proxy.guardrails.texts import Texts, answer_texts, request_texts
from proxy.ports import Watch
from proxy.record import Record
from proxy.types import Call, Chunk, Json, Plan
from proxy.types.guard import Rule, Stage

UNREADABLE = "The request holds content that no guard can read."


class Nothing:
    """The watch of an answer that no guard looks at."""

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        return (chunk,)


NOTHING = Nothing()


@dataclass(frozen=True, slots=True)
class Guards:
    """The guards of the policy, run by an engine."""

    engine: Engine

    async def inspect(self, plan: Plan, call: Call, record: Record) -> Call:
        """Give the call, with texts masked. Raises ``GuardBlocked``."""
        rules = plan.guards.input
        if not rules:
            return call
        opaque = request_texts(call.body).opaque
        if opaque and not plan.guards.opaque and any(rule.enforces for rule in rules):
            raise GuardBlocked(UNREADABLE, guard="opaque", kind=opaque[0].kind)
        desk = Desk(self.engine, record, "input", request_texts)
        return replace(call, body=await desk.cleared(rules, call.body))

    def watch(self, plan: Plan, call: Call, record: Record) -> Watch:
        """Start watching one answer."""
        watch, capture = self._watching(plan, call, record), plan.guards.capture
        if capture is None or not record.drawn(capture.share):
            return watch
        rules = redacting(capture, plan.guards)
        capturing = Capturing(capture, rules, call.body, self.engine.clock)
        record.captured = capturing.shown
        return Seen(watch, capturing)

    def _watching(self, plan: Plan, call: Call, record: Record) -> Watch:
        if not plan.guards.output:
            return NOTHING
        rules = bound(plan.guards.output, call.body)
        if not call.stream:
            return Whole(Desk(self.engine, record, "output", answer_texts), rules, call.body)
        inquiry = partial(self.engine.inquiry, call.body, record)
        watching = self.engine.watch(rules, inquiry)
        record.watched = watching.results
        return watching


@dataclass(frozen=True, slots=True)
class Seen:
    """A watch whose call may be shown in its trace."""

    watch: Watch
    capturing: Capturing

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        safe = await self.watch.feed(chunk)
        for each in safe:
            self.capturing.feed(each)
        return safe


@dataclass(frozen=True, slots=True)
class Desk:
    """Where whole documents of one call are looked at, question or answers."""

    engine: Engine
    record: Record
    stage: Stage
    read: Callable[[Json], Texts]

    async def cleared(self, rules: Sequence[Rule], data: Json, asked: Json | None = None) -> Json:
        """Give a document as its rules leave it: first those that look by themselves, then those
        that ask somebody else. ``asked`` is the question where the document is not."""
        own, services = parted(bound(rules, asked or data))
        if own:
            looked = await self.engine.inspect(own, self.read(data).texts)
            self.record.guarded(self.stage, looked.results)
            if looked.blocked is not None:
                self.record.guarded(self.stage, self.engine.unasked(services))
            data = _allowed(looked, data)
        if services:
            inquiry = self.engine.inquiry(asked or data, self.record)
            told = await self.engine.ask(services, self.read(data).texts, inquiry)
            self.record.guarded(self.stage, told.results)
            data = _allowed(told, data)
        return data


def _allowed(inspection: Inspection, data: Json) -> Json:
    """Give a document with its changes made. Raises ``GuardBlocked``."""
    inspection.permit()
    return replaced(data, inspection.changes)


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer of one document for each leg: each is looked at as a whole."""

    desk: Desk
    rules: Sequence[Rule]
    asked: Json

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        if chunk.data is None:
            return (chunk,)
        data = await self.desk.cleared(self.rules, chunk.data, self.asked)
        return (chunk,) if data is chunk.data else (replace(chunk, data=data, raw=None),)
