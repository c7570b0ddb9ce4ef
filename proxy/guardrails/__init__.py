"""Inspection of texts, in and out: what a policy does not let pass, shows masked, or only notes.

Every text of a question and of an answer is looked at, in every dialect, streamed or whole: see
``texts``. What cannot be read is refused while a guard is in force, unless the policy lets it pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from proxy.errors import GuardBlocked
from proxy.guardrails.engine import Engine, Watching
from proxy.guardrails.replacing import replaced
from proxy.guardrails.texts import answer_texts, request_texts
from proxy.ports import Watch
from proxy.record import Record
from proxy.types import Call, Chunk, Plan
from proxy.types.guard import Guarding

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
        found = request_texts(call.body)
        if found.opaque and not plan.guards.opaque and any(rule.enforces for rule in rules):
            raise GuardBlocked(UNREADABLE, guard="opaque", kind=found.opaque[0].kind)
        inspection = await self.engine.inspect(rules, found.texts)
        record.guarded("input", inspection.results)
        inspection.permit()
        return replace(call, body=replaced(call.body, inspection.changes))

    def watch(self, plan: Plan, call: Call, record: Record) -> Watch:
        """Start watching one answer."""
        if not plan.guards.output:
            return NOTHING
        return (Streamed if call.stream else Whole)(self.engine, plan.guards, record)


@dataclass(slots=True)
class Whole:
    """An answer of one document for each leg: each is looked at as a whole."""

    engine: Engine
    guards: Guarding
    record: Record

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        if chunk.data is None:
            return (chunk,)
        texts = answer_texts(chunk.data).texts
        inspection = await self.engine.inspect(self.guards.output, texts)
        self.record.guarded("output", inspection.results)
        inspection.permit()
        if not inspection.changes:
            return (chunk,)
        return (replace(chunk, data=replaced(chunk.data, inspection.changes), raw=None),)


@dataclass(slots=True)
class Streamed:
    """A stream: what may still be part of a finding is held back, the rest goes on."""

    engine: Engine
    guards: Guarding
    record: Record
    _watching: Watching = field(init=False)

    def __post_init__(self) -> None:
        self._watching = self.engine.watch(self.guards.output)
        self.record.watched = self._watching.results

    async def feed(self, chunk: Chunk) -> Sequence[Chunk]:
        return self._watching.deltas.feed(chunk)
